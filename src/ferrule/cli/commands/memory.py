"""`ferrule memory`: lessons remembered from earlier work."""

import sys
import time
from uuid import UUID

import msgspec

from ferrule.cli.options import Parser
from ferrule.config import ferrule_home
from ferrule.memory import MemoryStore
from ferrule.protocol.errors import UsageError
from ferrule.rendering.safe import safe

USAGE = "`ferrule memory` knows `list`, `add TEXT` and `remove UUID`"


def main(arguments: list[str]) -> int:
    """List, add or remove memories. Raises `UsageError` for an id that does not exist."""
    store = MemoryStore(ferrule_home())
    match arguments[:1]:
        case ["list"]:
            _list(store, arguments[1:])
        case ["add"]:
            _add(store, arguments[1:])
        case ["remove"]:
            _remove(store, arguments[1:])
        case ["-h" | "--help"]:
            print(f"usage: ferrule memory list|add|remove ...\n\n{USAGE}; each says more with --help.")
        case _:
            raise UsageError(USAGE)
    return 0


def _list(store: MemoryStore, arguments: list[str]) -> None:
    parser = Parser("memory list", "Print every memory, the oldest first.")
    parser.add_argument("--json", action="store_true", help="print whole memories, one JSON object per line")
    as_json = parser.parse_args(arguments).json
    memories = store.all()
    if not memories and not as_json:
        print("nothing is remembered; `ferrule memory add TEXT` adds something")
    for memory in memories:
        if as_json:
            print(msgspec.json.encode(memory).decode())
        else:
            day = time.strftime("%Y-%m-%d", time.localtime(memory.created))
            print(f"{memory.id}  {day}  {safe(memory.summary.partition(chr(10))[0])}")


def _add(store: MemoryStore, arguments: list[str]) -> None:
    parser = Parser("memory add", "Store a memory and print its id.")
    parser.add_argument("text", metavar="TEXT|-", help="the text to remember; - reads standard input")
    parser.add_argument("--trace", default="", metavar="TEXT", help="the work it comes from")
    parser.add_argument("--id", dest="memory_id", metavar="UUID", help="replace the memory with this id")
    options = parser.parse_args(arguments)
    text = sys.stdin.read() if options.text == "-" else options.text
    if not text.strip():
        raise UsageError("the text is empty: give the text to remember")
    memory_id = None if options.memory_id is None else _uuid(options.memory_id)
    print(store.add(text.strip(), options.trace, memory_id).id)


def _remove(store: MemoryStore, arguments: list[str]) -> None:
    parser = Parser("memory remove", "Forget a memory.")
    parser.add_argument("memory_id", metavar="UUID")
    memory_id = _uuid(parser.parse_args(arguments).memory_id)
    if not store.remove(memory_id):
        raise UsageError(f"there is no memory {memory_id}; `ferrule memory list` lists all")


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError as error:
        raise UsageError(f"{text!r} is not the id of a memory, which is a UUID") from error
