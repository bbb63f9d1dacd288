#!/bin/sh
# What a new user does on a machine that has Python and nothing else; $1 is pip or uv. Lines that begin with "ok: " are shown.
set -eu
installer=$1
tree=$(cd "$(dirname "$0")/../../.." && pwd)
began=$(date +%s)
ok() {
    echo "ok: $(($(date +%s) - began)) s  $*"
}
fail() {
    echo "FAILED: $*"
    exit 1
}
for program in git node rg curl; do
    ! command -v "$program" > /dev/null || fail "this machine has $program"
done
python3 --version

if [ "$installer" = uv ]; then # as uv's own installer puts it: in the user's folder
    python3 -m venv "$HOME/uv environment"
    "$HOME/uv environment/bin/pip" install --quiet uv
    mkdir -p "$HOME/.local/bin"
    ln -s "$HOME/uv environment/bin/uv" "$HOME/.local/bin/uv"
    PATH=$HOME/.local/bin:$PATH
fi

# The first command: the demo, from the tree.
cd "$tree"
./scripts/demo > "$HOME/demo" 2>&1 || { cat "$HOME/demo"; fail "the demo"; }
grep -q "FAILED (failures=2)" "$HOME/demo" && grep -q "The tests pass" "$HOME/demo" || { cat "$HOME/demo"; fail "what the demo shows"; }
ok "demo"
./scripts/demo > "$HOME/demo" 2>&1 || { cat "$HOME/demo"; fail "the demo, again"; }
ok "demo, again"
.venv/bin/python -m tests.compat.first_hour --tree "$tree" --first-sign 10
ok "a task of one's own, a resume, a program"

# The second: an environment of its own, outside of the tree.
environment="$HOME/my environment"
if [ "$installer" = uv ]; then
    uv venv --quiet "$environment"
    uv pip install --quiet --python "$environment/bin/python" '.[tui]'
    uv pip check --python "$environment/bin/python"
else
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet '.[tui]'
    "$environment/bin/pip" check
fi
cd "$HOME"
mkdir "a project"
cd "a project"
"$environment/bin/ferrule" doctor > "$HOME/doctor" 2>&1
! grep PROBLEM "$HOME/doctor" || fail "doctor sees a problem"
grep -E "^(python|git|rg|node|Sandbox)" "$HOME/doctor"
"$environment/bin/ferrule" sandbox -- sh -c 'echo inside > inside; ! echo outside 2> /dev/null > "$HOME/outside"'
[ "$(cat inside)" = inside ] && [ ! -e "$HOME/outside" ] || fail "the sandbox"
"$environment/bin/ferrule" demo > "$HOME/demo" 2>&1 || { cat "$HOME/demo"; fail "the demo of the installed command"; }
ok "installed: $("$environment/bin/ferrule" --version), $(grep -m1 Sandbox "$HOME/doctor")"
