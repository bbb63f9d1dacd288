"""Documents are parsed where a parser that was led astray finds nothing, or the log says why not."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.containers.documents import BestPlace, ContainerPlace
from ferrule.containers.local import LocalHost
from ferrule.documents.extraction import Extractor, Place
from tests.documents.papers import pdf

LOOK = (
    "import os, socket, sys\n"
    "sys.path[:0] = sys.argv[1:]\n"
    "import parsing.answers, pypdf\n"
    "own, asked, answers = os.getpid(), os.dup(0), os.dup(0)\n"
    "print(parsing.answers.apart(lambda: {'text': f'in a child: {os.getppid() == own}'}))\n"
    "print(sorted(os.listdir('/')), sorted(os.listdir(sys.argv[1])), [name for _, name in socket.if_nameindex()])\n"
    "try: open('/opt/parser/code/parsing/files.py', 'a')\n"
    "except OSError as error: print(error.strerror)\n"
)


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def read(place: Place) -> str:
    extractor = Extractor(place)
    paper = pdf("The tower has 42 metres")
    text = await extractor.read_file("paper.pdf", len(paper), once(paper))
    await extractor.aclose()
    return text


async def test_a_parser_runs_in_a_container_that_shows_it_nothing(host: LocalHost, tmp_path: Path) -> None:
    place = ContainerPlace(host.create)
    assert await read(place) == "The tower has 42 metres"
    container = place.container
    assert container is not None
    argv = place.argv
    looked = await container.run([*argv[: argv.index("-c") + 1], LOOK, *argv[argv.index("-c") + 2 :]], timeout=20)
    out = looked.stdout.text()
    assert "'parsing'" in out and "['lo']" in out and "Read-only file system" in out, looked
    assert "in a child: True" in out, "a document meets no other"
    assert str(Path(__file__).parents[2]) not in out and "root" not in os.listdir(container.folder)
    await container.aclose()
    assert await read(place) == "The tower has 42 metres", "an expired container is replaced"
    await place.aclose()


async def test_without_containers_the_sandbox_is_used_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = BestPlace(None, tmp_path)
    assert await read(place) == "The tower has 42 metres"
    assert "parsed in the sandbox of commands, since no container can be made" in caplog.text
    await place.aclose()
