"""Searches with ripgrep: one process, whose results are looked at while it still runs."""

import asyncio
import os
import re
import sysconfig
from collections.abc import Mapping

from ferrule.builtin.searching.request import COLUMNS, SEARCH_SECONDS, Dated, Found, FoundLine, Search
from ferrule.lookup import NOWHERE, Located, Places, locate
from ferrule.process.launcher import Child, Launcher, Limits, Pipes
from ferrule.protocol.errors import RespondToModel
from ferrule.sync import uninterrupted
from ferrule.tools.tasks import run_blocking

IN_PART = 2
"""The exit code where some files could not be searched, or where nothing was: then the messages name no file."""
READ_BYTES = 64 * 1024
"""Bytes of one read: the capacity of a pipe."""
MAX_LINES = 10_000
"""Lines that are taken; a model reads far fewer."""
MAX_ERROR_BYTES = 64 * 1024
"""Of the messages; few of them are shown."""

_BAD_IGNORE_LINE = re.compile(r": line \d+: error parsing glob ")
"""Reported despite `--no-ignore-messages` for folders above; the search is not affected."""
_RECORD = re.compile(
    rb"(?:--\n|[^\0\n]*: (?:WARNING: stopped searching binary|binary file matches)[^\0\n]*\n)*"
    rb"([^\0]+)\0(\d+)([:-])([^\n]*)\n"
)


def find_ripgrep(env: Mapping[str, str], places: Places = NOWHERE) -> Located:
    """Find the program on PATH, else where the `ripgrep` wheel puts it; never in `places`, where commands can write."""
    folders = (env.get("PATH", os.defpath), sysconfig.get_path("scripts"))
    return locate("rg", os.pathsep.join(folders), places)


async def search_with_ripgrep(search: Search, program: str, launcher: Launcher, env: Mapping[str, str]) -> Found:
    """Raises `RespondToModel` with what ripgrep says, and `LaunchError` where it cannot be started."""
    child = await launcher.launch([program, *_arguments(search)], env, search.cwd, Pipes(), Limits())
    results = _Lines() if search.lines else _Files(search.newest)
    try:
        async with asyncio.timeout(SEARCH_SECONDS):
            errors = await _both(child, results)
            if results.cut:
                await child.kill_tree()
            status = await child.wait()
    except TimeoutError as error:
        await uninterrupted(child.kill_tree())
        raise RespondToModel(f"rg timed out after {SEARCH_SECONDS:g} seconds") from error
    except BaseException:
        await uninterrupted(child.kill_tree())
        raise
    messages = errors.splitlines()
    if status.code == IN_PART and not (messages and messages[0].startswith("rg: /")):
        raise RespondToModel(f"rg failed: {errors.strip()}")
    return results.found([line for line in messages if not _BAD_IGNORE_LINE.search(line)])


def _arguments(search: Search) -> list[str]:
    """No configuration of the user's changes what a model gets; the pattern can start with a dash."""
    given = ["--no-config", "--null", "--color=never", "--no-ignore-messages"]
    if search.include is not None:
        given.append(f"--glob={search.include}")
    if search.hidden:
        given += ["--hidden", "--glob=!.git"]
    if search.pattern is None:
        return [*given, "--files", "--", search.path]
    if search.ignore_case:
        given.append("--ignore-case")
    if search.lines:
        given += ["--with-filename", "--line-number", "--no-heading", "--sort=none"]
        given += [f"--max-columns={COLUMNS}", "--max-columns-preview"]
        given += [f"--before-context={search.before}", f"--after-context={search.after}"]
    else:
        given.append("--files-with-matches")
    return [*given, f"--regexp={search.pattern}", "--", search.path]


async def _both(child: Child, results: "_Files | _Lines") -> str:
    """Read both outputs to their ends on threads; returns stderr. The descriptors are closed when their threads end."""
    assert child.stderr is not None
    reading = run_blocking(_drain, child.stdout, results)
    errors = _Errors()
    await asyncio.gather(reading, run_blocking(_drain, child.stderr, errors))
    return bytes(errors.data).decode(errors="replace")


def _drain(fd: int, results: "_Files | _Lines | _Errors") -> None:
    try:
        os.set_blocking(fd, True)
        while not results.cut and (data := os.read(fd, READ_BYTES)):
            results.take(data)
    finally:
        os.close(fd)


class _Errors:
    """The first messages; the rest is read and dropped, or ripgrep would wait."""

    cut = False

    def __init__(self) -> None:
        self.data = bytearray()

    def take(self, data: bytes) -> None:
        self.data += data[: MAX_ERROR_BYTES - len(self.data)]


class _Files:
    """Names, each followed by a NUL. They are looked at at once, beside ripgrep's own work."""

    cut = False

    def __init__(self, newest: int | None) -> None:
        self._newest = newest
        self._files = Dated()
        self._rest = b""

    def take(self, data: bytes) -> None:
        *names, self._rest = (self._rest + data).split(b"\0")
        self._files.add(names)

    def found(self, warnings: list[str]) -> Found:
        return Found(files=self._files.newest(self._newest), count=len(self._files), warnings=warnings)


class _Lines:
    """`NAME NUL NUMBER : TEXT`, with `-` instead of `:` for lines beside a match, and `--` between groups."""

    def __init__(self) -> None:
        self._lines: list[FoundLine] = []
        self._rest = b""
        self.cut = False

    def take(self, data: bytes) -> None:
        data = self._rest + data
        end = 0
        for record in _RECORD.finditer(data):
            name, number, sign, text = record.groups()
            self._lines.append(FoundLine(os.fsdecode(name), int(number), text, sign == b":"))
            end = record.end()
        self._rest = data[end:]
        self.cut = len(self._lines) >= MAX_LINES

    def found(self, warnings: list[str]) -> Found:
        return Found(lines=self._lines[:MAX_LINES], warnings=warnings, cut=self.cut)
