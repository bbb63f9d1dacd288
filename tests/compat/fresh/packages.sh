#!/bin/sh
# Build the wheel and the sdist, install both, and install each extra alone. Lines that begin with "ok: " are shown.
set -eu
tree=$(cd "$(dirname "$0")/../../.." && pwd)
ok() {
    echo "ok: $*"
}
fail() {
    echo "FAILED: $*"
    exit 1
}
cd "$tree"
python3 -m venv "$HOME/tools"
"$HOME/tools/bin/pip" install --quiet uv
uv=$HOME/tools/bin/uv

# In an environment of its own ($1): install $2, check that all fits, run the command.
try() {
    environment=$HOME/"environment $1"
    "$uv" venv --quiet "$environment"
    "$uv" pip install --quiet --python "$environment/bin/python" "$2" || fail "install $2"
    "$uv" pip check --quiet --python "$environment/bin/python" || fail "packages of $1 do not fit"
    (cd "$HOME" && "$environment/bin/ferrule" tools -m gpt-5.5 > /dev/null) || fail "run with $1"
}

"$uv" build --quiet --out-dir "$HOME/dist" || fail "build"
for built in "$HOME"/dist/ferrule-*; do
    try "$(basename "$built")" "$built"
    (cd "$HOME" && "$environment/bin/ferrule" demo > "$HOME/demo" 2>&1) || { cat "$HOME/demo"; fail "demo from $built"; }
    ok "$(basename "$built"), $(du -k "$built" | cut -f1) KiB"
    rm -r "$environment"
done
wheel=$(echo "$HOME"/dist/*.whl)

# The module that each extra is for; those of the command are imported by its subcommands.
for pair in $(python3 tests/compat/fresh/extras.py); do
    extra=${pair%%=*}
    try "$extra" "$wheel[$extra]"
    case ${pair#*=} in
    bin/*) "$environment/${pair#*=}" --version > /dev/null || fail "run ${pair#*=} of the extra $extra" ;;
    *) "$environment/bin/python" -c "import ${pair#*=}" || fail "import ${pair#*=} with the extra $extra" ;;
    esac
    ok "extra $extra: $("$uv" pip list --quiet --python "$environment/bin/python" | tail -n +3 | wc -l) packages"
    rm -r "$environment"
done
