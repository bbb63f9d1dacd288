"""Folders: what of them is indexed, read again, embedded again, and what is never read."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from ferrule.locks import try_lock
from ferrule.reading import read_inside
from ferrule.retrieval import folder_files, folder_index
from ferrule.retrieval.folder_files import text_of
from ferrule.retrieval.folder_index import FolderIndex, index_path
from ferrule.retrieval.folder_search import FileHits, FolderSearch
from ferrule.retrieval.index import Index
from ferrule.retrieval.tables import Document
from ferrule.retrieval.vectors import VectorMemory
from tests.retrieval.toy import ToyEmbedder

ANSWER = "The tower of Brix is 42 m high.\n"


class ToyParser:
    """Reads documents as text. `asked` are their names; `down`: it reads none now."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False

    async def parse(self, name: str, data: bytes) -> str | None:
        self.asked.append(name)
        return None if self.down else data.decode(errors="ignore")

    async def aclose(self) -> None:
        pass


class Place:
    """A folder, a home, and searches in it."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.folder = base / "folder"
        self.folder.mkdir()
        self.embedder = ToyEmbedder()
        self.parser = ToyParser()
        self.shown: tuple[str, ...] | None = None
        self.wait = 30.0

    def write(self, name: str, text: str | bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def opened(self, *folders: Path, embedder: bool = False) -> FolderSearch:
        return FolderSearch(
            [str(folder) for folder in folders or (self.folder,)],
            str(self.home),
            self.embedder if embedder else None,
            VectorMemory(),
            parser=self.parser,
            shown=self.shown,
            wait=self.wait,
        )

    async def ask(self, question: str, *folders: Path) -> FileHits:
        async with self.opened(*folders) as search:
            return await search.search(question)

    def vectors(self) -> int:
        """How many vectors are stored; 0 while some are missing."""
        with closing(sqlite3.connect(index_path(str(self.home), str(self.folder)))) as index:
            [count] = index.execute("select count(*) * not exists (select 1 from pending) from vectors").fetchone()
        assert isinstance(count, int)
        return count

    async def names(self, question: str) -> list[str]:
        return sorted(os.path.relpath(hit.path, self.folder) for hit in (await self.ask(question)).hits)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(folder_index, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(folder_index, "AGAIN_SECONDS", 0.02)
    return Place(tmp_path.resolve())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []

    def noted(top: str, path: str, limit: int, *, check: Callable[[int], None]) -> bytes:
        read.append(path)
        return read_inside(top, path, limit, check=check)

    monkeypatch.setattr(folder_files, "read_inside", noted)
    return read


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)


async def test_a_passage_is_found_with_its_path_and_line(place: Place) -> None:
    file = place.write("docs/towers.md", "# Towers\n\n" + ANSWER)
    place.write("other.md", "Nothing of that.\n")
    found = await place.ask("how high is the tower")
    assert [(hit.path, hit.line, hit.score) for hit in found.hits][:1] == [(str(file), 1, 1.0)]
    assert ANSWER.strip() in found.hits[0].text
    assert found.notes == ["Passages are found by their words alone: use words that they contain."]


async def test_each_passage_of_a_long_file_has_its_own_line(place: Place) -> None:
    place.write("long.txt", "".join(f"line {number} of many\n" for number in range(1, 2000)) + ANSWER)
    [hit] = (await place.ask("tower")).hits
    first = hit.text.splitlines()[0]
    assert hit.line > 1500 and first == f"line {hit.line} of many"


async def test_ignored_and_hidden_files_links_and_special_files_are_left_out(place: Place) -> None:
    place.write(".ignore", "secret*\n")
    place.write("secret.txt", ANSWER)
    place.write(".env", ANSWER)
    outside = place.folder.parent / "outside.txt"
    outside.write_text(ANSWER)
    (place.folder / "link").symlink_to(outside)
    (place.folder / "linked").symlink_to(outside.parent)
    os.mkfifo(place.folder / "pipe")
    place.write("seen.txt", ANSWER)
    assert await place.names("tower") == ["seen.txt"]


async def test_a_link_that_takes_a_files_place_while_it_is_indexed_leads_nowhere(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = place.folder.parent / "outside.txt"
    outside.write_text(ANSWER)
    file = place.write("a.txt", "x")
    real = folder_files.survey

    def swapped(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        file.unlink()
        file.symlink_to(outside)
        return found

    monkeypatch.setattr(folder_index, "survey", swapped)
    assert await place.names("tower") == []


async def test_what_vanishes_or_changes_while_it_is_indexed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, changed = place.write("gone.txt", ANSWER), place.write("changed.txt", "first")
    real = folder_files.survey

    def late(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        gone.unlink(missing_ok=True)
        changed.write_text(f"second {ANSWER}")
        return found

    monkeypatch.setattr(folder_index, "survey", late)
    assert await place.names("tower") == ["changed.txt"]
    monkeypatch.setattr(folder_index, "survey", real)
    changed.write_text("third, a longer one")
    assert await place.names("tower") == []
    assert await place.names("third") == ["changed.txt"]


async def test_only_what_has_changed_is_read_and_embedded_again(place: Place, reads: list[str]) -> None:
    for name in ("a", "b", "c"):
        place.write(f"{name}.txt", f"text of {name}")
    place.write("image.png", b"\x89PNG\r\n\0\0\0" * 50)
    async with place.opened(embedder=True) as search:
        await search.search("a")
        await until(lambda: place.vectors() == 3)
    assert sorted(reads) == ["a.txt", "b.txt", "c.txt", "image.png"]
    assert sorted(set(place.embedder.asked)) == ["a", "dimension", "text of a", "text of b", "text of c"]
    reads.clear()
    place.embedder.asked.clear()
    place.write("b.txt", "other text")
    os.utime(place.folder / "c.txt", (1, 1))  # as a checkout and back leaves it
    (place.folder / "a.txt").unlink()
    async with place.opened(embedder=True) as search:
        found = await search.search("text")
        await until(lambda: place.vectors() == 2)
    assert sorted(reads) == ["b.txt", "c.txt"]
    assert "text of c" not in place.embedder.asked
    assert sorted({os.path.basename(hit.path) for hit in found.hits}) == ["b.txt", "c.txt"]
    reads.clear()
    assert "c.txt" in await place.names("text") and reads == []


async def test_documents_are_parsed_once_and_again_while_they_cannot_be(place: Place, reads: list[str]) -> None:
    place.write("a.PDF", ANSWER)
    place.write("b.docx", b"\xff\xfe")
    place.parser.down = True
    assert await place.names("tower") == []
    place.parser.down = False
    assert await place.names("tower") == ["a.PDF"]
    reads.clear()
    place.parser.asked.clear()
    assert await place.names("tower") == ["a.PDF"]
    assert reads == place.parser.asked == []


async def test_a_search_that_cannot_wait_says_how_far_the_index_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        place.write(f"{number}.txt", ANSWER)
    monkeypatch.setattr(folder_files, "BATCH_FILES", 1)
    held = asyncio.Event()
    put_all = Index.put_all

    async def slow(self: Index, documents: Sequence[Document], *, embed: bool) -> list[int]:
        if documents[0].name == "1.txt":
            await held.wait()
        return await put_all(self, documents, embed=embed)

    monkeypatch.setattr(Index, "put_all", slow)
    place.wait = 0.3
    async with place.opened() as search:
        found = await search.search("tower")
        assert "changed files of" in found.notes[0] and "are not in the index yet" in found.notes[0]
        assert len(found.hits) < 3
        held.set()
        await until_found(search, 3)


async def until_found(search: FolderSearch, count: int) -> None:
    async with asyncio.timeout(20):
        while len((await search.search("tower")).hits) < count:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_a_folder_that_another_program_indexes_is_searched_as_it_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("a.txt", ANSWER)
    assert await place.names("tower") == ["a.txt"]
    place.write("b.txt", ANSWER)
    monkeypatch.setattr(folder_index, "LOCK_SECONDS", 0.0)
    lock = os.open(index_path(str(place.home), str(place.folder)).with_suffix(".reading"), os.O_RDWR)
    assert try_lock(lock)
    found = await place.ask("tower")
    os.close(lock)
    assert len(found.hits) == 1 and f"{place.folder} is being indexed by another program." in found.notes
    assert await place.names("tower") == ["a.txt", "b.txt"]


async def test_what_could_not_be_embedded_is_embedded_when_the_server_is_back(place: Place) -> None:
    place.write("a.txt", ANSWER)
    place.embedder.down = True
    async with place.opened(embedder=True) as search:
        assert len((await search.search("tower")).hits) == 1
        place.embedder.down = False
        await until(lambda: ANSWER.strip() in place.embedder.asked)


async def test_a_damaged_index_is_made_again(place: Place) -> None:
    place.write("a.txt", ANSWER)
    assert await place.names("tower") == ["a.txt"]
    index_path(str(place.home), str(place.folder)).write_bytes(b"damage" * 1000)
    assert await place.names("tower") == ["a.txt"]


async def test_an_index_whose_damage_shows_late_is_made_again(place: Place) -> None:
    for number in range(40):
        place.write(f"{number}.txt", f"{ANSWER} number{number} " * 10)
    assert await place.names("number7") == ["7.txt"]
    path = index_path(str(place.home), str(place.folder))
    whole = path.read_bytes()
    third = len(whole) // 3
    path.write_bytes(whole[:third] + b"damage" * (third // 6) + whole[third // 6 * 6 + third :])
    assert await place.names("number7") == ["7.txt"]
    path.write_bytes(whole[:third] + b"damage" * (third // 3))
    async with place.opened(place.folder) as search:
        place.write("7.txt", "It is another one")
        assert [hit.line for hit in (await search.search("another")).hits] == [1]


async def test_an_index_that_is_removed_while_it_is_used_is_made_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_index, "FRESH_SECONDS", 0.0)
    place.write("a.txt", ANSWER)
    async with place.opened(place.folder) as search:
        assert len((await search.search("tower")).hits) == 1
        shutil.rmtree(place.home)
        place.write("b.txt", ANSWER)
        assert len((await search.search("tower")).hits) == 2
        assert index_path(str(place.home), str(place.folder)).exists()


async def test_files_too_large_or_too_many_are_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_files, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(folder_files, "MAX_FILES", 2)
    for number in range(3):
        place.write(f"{number}.txt", ANSWER)
    place.write("large.txt", ANSWER * 10)
    found = await place.ask("tower")
    assert len(found.hits) == 2
    assert f"2 files of {place.folder} are too large, or too many, for the index." in found.notes


async def test_a_folder_without_end_is_not_looked_at_to_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        place.write(f"{number}.txt", ANSWER)
    assert len((await place.ask("tower")).hits) == 6
    monkeypatch.setattr(folder_files, "MAX_FILES", 2)
    monkeypatch.setattr(folder_files, "MAX_LEFT_OUT", 3)
    found = await place.ask("tower")
    assert len(found.hits) == 6 and f"3 files of {place.folder} are too large, or too many" in found.notes[0]


async def test_what_was_begun_is_gone_on_with(place: Place, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_files, "BATCH_FILES", 1)
    for number in range(6):
        place.write(f"{number}.txt", ANSWER)
    index = await FolderIndex.open(str(place.folder), str(place.home), None, VectorMemory(), None)
    put_all, stopped = Index.put_all, asyncio.Event()

    async def third(self: Index, documents: Sequence[Document], *, embed: bool) -> list[int]:
        if len(reads) == 3:
            stopped.set()
            await asyncio.Event().wait()
        return await put_all(self, documents, embed=embed)

    monkeypatch.setattr(Index, "put_all", third)
    index.start()
    await stopped.wait()
    await index.aclose()
    monkeypatch.setattr(Index, "put_all", put_all)
    assert len((await place.ask("tower")).hits) == 6
    assert len(reads) == 7 and len(set(reads)) == 6


async def test_a_folder_that_is_not_shown_is_not_read(place: Place, reads: list[str]) -> None:
    place.write("a.txt", ANSWER)
    place.shown = (str(place.home),)
    found = await place.ask("tower")
    assert found.hits == [] and reads == [] and "is not among the folders that the container shows" in found.notes[0]
    place.shown = (str(place.folder),)
    assert len((await place.ask("tower")).hits) == 1
    place.shown = (str(place.home),)
    assert (await place.ask("tower")).hits == []  # nor what another session has indexed of it


@pytest.mark.parametrize("folder", ["/nowhere/at/all", "/proc"])
async def test_a_folder_that_cannot_be_searched_is_told(place: Place, folder: str) -> None:
    found = await place.ask("tower", Path(folder))
    assert found.hits == [] and folder in found.notes[0] and "cannot be indexed" in found.notes[0]


async def test_several_folders_are_searched_together(place: Place) -> None:
    one, other = place.write("one/a.txt", ANSWER), place.write("two/b.txt", "The tower is old.")
    found = await place.ask("tower of Brix", one.parent, other.parent, one.parent, place.folder)
    assert sorted(hit.path for hit in found.hits) == [str(one), str(other)]


async def test_a_name_that_is_no_text_is_indexed(place: Place) -> None:
    place.write("\udcff.txt", ANSWER)
    assert await place.names("tower") == ["\\xff.txt"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("é\n".encode(), "é\n"),
        ("\ufeffmark".encode(), "mark"),
        ("größer ist das alles".encode("latin-1"), "größer ist das alles"),
        ("\ufeffwide".encode("utf-16-le"), "wide"),
        (b"\x7fELF\0\0\0\1" * 40, ""),
        (bytes(range(128, 256)) * 40, ""),
        (b"", ""),
    ],
)
def test_text_of_any_encoding(data: bytes, text: str) -> None:
    assert text_of(data) == text


async def test_closing_stops_what_is_being_indexed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("a.txt", ANSWER)
    held = asyncio.Event()

    async def never(self: object, *arguments: object, **options: object) -> None:
        held.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Index, "put_all", never)
    index = await FolderIndex.open(str(place.folder), str(place.home), None, VectorMemory(), None)
    index.start()
    await held.wait()
    await index.aclose()
