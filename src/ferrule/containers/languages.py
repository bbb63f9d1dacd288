"""The programming languages of a container's root, with their versions: found by asking each program in one."""

import re

import msgspec

from ferrule.containers.container import Container
from ferrule.process.launcher import LaunchError
from ferrule.process.run import run

PATIENCE = 20.0
"""Seconds: all answer within one; a busy machine takes much longer."""
NAMES = ("Python", "Node.js", "Java", "PHP", "Ruby", "Go", "bash")
"""Those of OpenAI's hosted shell."""
SCRIPT = r"""
ask() {
    name=$1; shift
    command -v "$1" > /dev/null 2>&1 && "$@" 2>&1 < /dev/null | { read -r line; echo "$name=$line"; }
}
ask Python python3 --version & ask Node.js node --version & ask Java java -version & ask PHP php --version &
ask Ruby ruby --version & ask Go go version & ask bash bash --version &
for path in /usr/bin/python3 /usr/local/bin/python3 "$(command -v python3)"; do
    if [ -x "$path" ]; then echo "python=$path"; break; fi
done
wait
"""
_VERSION = re.compile(r"\d+(?:\.\d+)+")


class Languages(msgspec.Struct, frozen=True):
    """`versions` by name, in the order of `NAMES`; `python` is the interpreter's path inside."""

    versions: dict[str, str] = {}
    python: str | None = None

    @property
    def sentence(self) -> str:
        """Say which are there and which are not; empty if that is not known."""
        if not self.versions:
            return ""
        there = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        missing = [name for name in NAMES if name not in self.versions]
        return f"There are {there}." + (f" There is no {' and no '.join(missing)}." if missing else "")


async def languages_of(container: Container) -> Languages:
    """Ask the programs of a container. Nothing is known where that fails. What the container has to tell is left for
    its first command."""
    argv = ["/bin/sh", "-c", SCRIPT]
    try:
        await container.start()  # its variables are known then
        done = await run(container, argv, env=container.environment, cwd="/", timeout_ms=int(PATIENCE * 1000))
    except LaunchError:
        return Languages()
    pairs = dict(line.split("=", 1) for line in done.stdout.text().splitlines() if "=" in line)
    found = ((name, _VERSION.search(pairs.get(name, ""))) for name in NAMES)
    return Languages({name: match[0] for name, match in found if match}, pairs.get("python"))
