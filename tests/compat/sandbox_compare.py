"""Compare what a confined command may do with what the Codex binary lets it do. Development only: started by
`scripts/compat`, which installs the binary.

Each probe is a shell command that exits with 0 when it could do what it tried. Both sandboxes run it in a fresh copy of
one workspace; a difference must be a listed departure.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.headless import environment

MODES = {"workspace-write": ":workspace", "read-only": ":read-only"}
"""Our name of a mode, and the binary's."""

PROBES = {
    "write in the workspace": "echo x > new.txt",
    "write through a link out of the workspace": "ln -s /var/lib link && touch link/ferrule-probe",
    "overwrite a file of the workspace": "echo x > kept.txt",
    "delete a file of the workspace": "rm kept.txt",
    "write in /tmp": "touch /tmp/ferrule-probe && rm /tmp/ferrule-probe",
    "write in the home": 'touch "$HOME/ferrule-probe"',
    "write in /var/tmp": "touch /var/tmp/ferrule-probe && rm /var/tmp/ferrule-probe",
    "write in /etc": "touch /etc/ferrule-probe",
    "write beside the workspace": "touch ../ferrule-probe",
    "write to .git": "touch .git/ferrule-probe",
    "write to .git/hooks": "touch .git/hooks/pre-commit",
    "replace .git": "mv .git other",
    "delete .git": "rm -r .git",
    "git status": "git status --short",
    "git commit": "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x",
    "make .codex": "mkdir .codex",
    "make .ferrule": "mkdir .ferrule",
    "write to /dev/null": "echo x > /dev/null",
    "write to /dev/shm": "touch /dev/shm/ferrule-probe",
    "read /etc/passwd": "head -c 1 /etc/passwd",
    "read the home": 'ls "$HOME"',
    "connect to the loopback": "exec 3<>/dev/tcp/127.0.0.1/$PORT",
    "make a unix socket": "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"",
    "connect to a unix socket outside": (
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('../outside.sock')\""
    ),
    "make a socket pair": 'python3 -c "import socket; socket.socketpair()"',
    "see processes outside": "test -d /proc/$PARENT",
    "signal a process outside": "kill -0 $PARENT",
    "mount": "mount -t tmpfs none /mnt",
    "unshare": "unshare -U true",
    "change the owner": "chown 12345 kept.txt",
    "set the set-user-id bit": "cp /bin/true t && chmod u+s t && ./t",
    "run a program of the workspace": "cp /bin/true t && ./t",
    "a background job": "sleep 0.01 & wait",
    "a pipeline": "seq 1000 | sort -rn | head -1",
    "exit code": "exit 0",
}

DEPARTURES = {
    "make .ferrule": "our own project folder is protected, theirs is .codex",
    "make a unix socket": "confined programs may talk among themselves; the sockets of the host are covered",
    "unshare": "no namespaces inside the sandbox",
}
"""Probe -> why we allow or refuse what the binary does not."""


def main() -> int:
    """Run every probe in both. Exits with 1 when a difference is not listed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("binary")
    binary = options.parse_args().binary
    ours = Path(sys.executable).parent / "ferrule"
    unexplained = 0
    both = {True: 0, False: 0}
    for mode, profile in MODES.items():
        for name, probe in PROBES.items():
            allowed = run([str(ours), "sandbox", "-s", mode], probe)
            theirs = run([binary, "sandbox", "-P", profile], probe)
            if allowed == theirs:
                both[allowed] += 1
                continue
            reason = DEPARTURES.get(name)
            unexplained += reason is None
            print(f"{mode}: {name}: {word(allowed)}, the binary {word(theirs)}: {reason or 'UNEXPLAINED'}")
    print(f"{both[True]} probes allowed by both, {both[False]} refused by both, {unexplained} differences unexplained")
    return 1 if unexplained else 0


def word(allowed: bool) -> str:
    """How the report says it."""
    return "allowed" if allowed else "refused"


def run(words: list[str], probe: str) -> bool:
    """Whether the probe came through, in a fresh workspace with a fresh home."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferrule-compat-") as base:
        home, workspace = Path(base, "home"), Path(base, "workspace")
        home.mkdir()
        workspace.mkdir()
        subprocess.run(["git", "init", "-q", workspace], check=True)
        (workspace / "kept.txt").write_text("kept\n")
        with (
            subprocess.Popen(["sleep", "60"]) as outside,
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.socket(socket.AF_UNIX) as local,
        ):
            local.bind(str(Path(base, "outside.sock")))
            local.listen()
            env = environment(home) | {"PARENT": str(outside.pid), "PORT": str(listener.getsockname()[1])}
            done = subprocess.run(
                [*words, "-C", str(workspace), "--", "bash", "-c", probe], env=env, capture_output=True, check=False
            )
            outside.kill()
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
