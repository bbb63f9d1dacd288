"""`ferrule files`: the folders that `file_search` searches, and their indexes."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from ferrule.cli.exit_codes import DONE
from ferrule.cli.options import (
    Parser,
    add_config_flag,
    add_directory_flag,
    configuration,
    existing_directory,
    print_warnings,
)
from ferrule.cli.running import run_interruptibly
from ferrule.config.edit import set_folders
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.retrieval.embedder import Embedder
from ferrule.retrieval.embedders import open_embedder
from ferrule.retrieval.folder_index import FolderIndex, Known, index_path, known_folders, remove_index
from ferrule.retrieval.folder_search import FolderSearch
from ferrule.retrieval.index import NO_EMBEDDER
from ferrule.retrieval.vectors import VectorMemory
from ferrule.session.parser import ConfinedParser

DESCRIPTION = """\
List, add and remove the folders that the tool file_search searches; index them, and search in them yourself."""
NOTHING = "no folder is searched; `ferrule files add FOLDER` adds one"
CONFIG = "config.toml"


class Listed(msgspec.Struct, frozen=True):
    """A folder. `searched`: the configuration names it. Without an index the counts are 0."""

    folder: str
    searched: bool
    files: int = 0
    passages: int = 0
    without_vectors: int = 0
    bytes: int = 0

    def line(self) -> str:
        """Return it for people."""
        if not self.bytes:
            return f"{safe(self.folder)}  not indexed yet"
        files = "1 file" if self.files == 1 else f"{self.files} files"
        passages = "1 passage" if self.passages == 1 else f"{self.passages} passages"
        said = f"{safe(self.folder)}  {files}, {passages}, {self.bytes / 2**20:.1f} MB"
        if self.without_vectors:
            said += f", {self.without_vectors} without vectors"
        return said if self.searched else f"{said}  (not searched: no setting names it)"


def main(arguments: list[str]) -> int:
    """Do one thing with the folders. Return the exit code."""
    options = _parser().parse_args(arguments)
    settings = configuration(options).settings
    match options.action:
        case "add":
            return _add(settings, options.folders)
        case "rm":
            return _remove(settings, options.folder)
        case "index":
            return run_interruptibly(_index(settings, _folders(settings)))
        case "search":
            return run_interruptibly(_search(settings, options.query, as_json=options.json))
    return run_interruptibly(_list(settings, as_json=options.json))


def _parser() -> Parser:
    parser = Parser("files", DESCRIPTION)
    parser.set_defaults(json=False, directory=None, assignments=[])
    actions = parser.add_subparsers(dest="action", parser_class=argparse.ArgumentParser)
    listed = actions.add_parser("list", help="list the folders and what is indexed of them")
    added = actions.add_parser("add", help="name folders in config.toml, and index them")
    added.add_argument("folders", metavar="FOLDER", nargs="+")
    indexed = actions.add_parser("index", help="bring the indexes up to date, vectors too")
    searched = actions.add_parser("search", help="print the passages that the tool would find")
    searched.add_argument("query", metavar="QUERY")
    removed = actions.add_parser("rm", help="take a folder out of config.toml, and remove its index")
    removed.add_argument("folder", metavar="FOLDER")
    for each in (listed, searched):
        each.add_argument("--json", action="store_true", help="print one JSON object per line")
    for each in (listed, added, indexed, searched, removed):
        add_directory_flag(each)
    for each in (listed, indexed, searched):
        add_config_flag(each)
    return parser


def _folders(settings: Settings) -> list[str]:
    """Return the folders of the settings. Raises `UsageError` if there are none."""
    if not settings.file_search.folders:
        raise UsageError(NOTHING)
    return [_real(settings, folder) for folder in settings.file_search.folders]


def _real(settings: Settings, folder: str) -> str:
    return os.path.realpath(os.path.join(settings.cwd, os.path.expanduser(folder)))


async def _list(settings: Settings, *, as_json: bool) -> int:
    searched = [_real(settings, folder) for folder in settings.file_search.folders]
    known = await known_folders(settings.home)
    for folder in dict.fromkeys((*searched, *known)):
        entry = _listed(folder, known.get(folder), searched=folder in searched)
        print(msgspec.json.encode(entry).decode() if as_json else entry.line())
    if not searched and not known and not as_json:
        print(NOTHING)
    return DONE


def _listed(folder: str, known: Known | None, *, searched: bool) -> Listed:
    if known is None:
        return Listed(folder, searched)
    counts = known.counts
    return Listed(folder, searched, counts.documents, counts.chunks, counts.waiting, known.bytes)


def _add(settings: Settings, folders: Sequence[str]) -> int:
    real = [existing_directory(_real(settings, folder), "FOLDER") for folder in folders]
    named = [folder for folder in settings.file_search.folders if _real(settings, folder) not in real]
    set_folders(Path(settings.home, CONFIG), [*named, *real])
    return run_interruptibly(_index(settings, real))


def _remove(settings: Settings, folder: str) -> int:
    real = _real(settings, folder)
    named = settings.file_search.folders
    kept = [each for each in named if _real(settings, each) != real]
    path = index_path(settings.home, real)
    if len(kept) == len(named) and not path.exists():
        raise UsageError(f"{folder} is not searched, and has no index; `ferrule files list` lists the folders")
    if len(kept) < len(named):
        set_folders(Path(settings.home, CONFIG), kept)
    remove_index(path)
    print(f"{safe(real)} is no longer searched")
    return DONE


async def _index(settings: Settings, folders: Sequence[str]) -> int:
    """Index folders and wait, for their vectors, too."""
    async with AsyncExitStack() as ends:
        embedder = _embedder(settings, ends)
        parser = ConfinedParser(settings.home)
        ends.push_async_callback(parser.aclose)
        for folder in folders:
            index = await FolderIndex.open(folder, settings.home, embedder, VectorMemory(), parser=parser)
            await ends.enter_async_context(index)
            await index.start()
            await index.index.embed_missing()
            state, counts = index.state, await index.index.counts()
            print_warnings([] if state is None else [state])
            print(_listed(folder, Known(index_path(settings.home, folder), counts), searched=True).line(), flush=True)
            if index.index.reason not in (None, NO_EMBEDDER):
                print_warnings([str(index.index.reason)])
    return DONE


def _embedder(settings: Settings, ends: AsyncExitStack) -> Embedder | None:
    embedder = open_embedder(settings.embeddings, os.environ)
    if embedder is not None:
        ends.push_async_callback(embedder.aclose)
    return embedder


async def _search(settings: Settings, query: str, *, as_json: bool) -> int:
    embedder = open_embedder(settings.embeddings, os.environ)
    memory = VectorMemory(settings.embeddings.memory_bytes)
    parser = ConfinedParser(settings.home)
    async with FolderSearch(_folders(settings), settings.home, embedder, memory, parser=parser, wait=None) as search:
        found = await search.search(query)
    for hit in found.hits:
        if as_json:
            print(msgspec.json.encode(hit).decode())
        else:
            print(f"{safe(hit.path)}:{hit.line}\n{safe(hit.text)}\n")
    print_warnings(found.notes)
    if not found.hits and not as_json:
        print("no passage found", file=sys.stderr)
    return DONE
