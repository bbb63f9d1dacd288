"""`ferrule serve`: the Responses API over any model, and the keys for it."""

import asyncio
import gc
import logging
import signal
import sys
from typing import TYPE_CHECKING

from ferrule.cli.exit_codes import DONE
from ferrule.cli.gateway_state import needs_extra, state_file
from ferrule.cli.options import Parser, add_config_flag, add_model_flags, configuration
from ferrule.cli.running import allow_open_files
from ferrule.config import ferrule_home
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.serving import Bind

if TYPE_CHECKING:
    from ferrule.store import Store

DESCRIPTION = """\
Serve the Responses API over a model, whatever API that has: responses, conversations, files, over HTTP, server-sent
events and WebSocket. Needs the extra `gateway`. What it keeps lies in FERRULE_HOME/gateway.

`ferrule serve keys add NAME` makes a key and prints it; `keys list` and `keys remove NAME` manage them. As soon as
there is one, every client needs one. Each key sees only what was stored with it.

`ferrule serve check --base-url URL` checks any server of the Responses API, this one or another."""

USAGE = """\
ferrule serve [OPTION]...
       ferrule serve keys add NAME|list|remove NAME
       ferrule serve check --base-url URL [OPTION]..."""

NEW_OBJECTS = 20_000
"""Objects, more than have gone, after which the garbage collector looks for those that refer to each other: some ten
megabytes."""

KEYS_USAGE = "`ferrule serve keys` knows `list`, `add NAME` and `remove NAME`"


def main(arguments: list[str]) -> int:
    """Serve until a signal ends it, manage keys, or check a server."""
    if arguments[:1] == ["check"]:
        from ferrule.cli.commands import serve_check

        return serve_check.main(arguments[1:])
    with needs_extra("serve"):
        return _keys(arguments[1:]) if arguments[:1] == ["keys"] else _serve(arguments)


def _serve(arguments: list[str]) -> int:
    parser = Parser("serve", DESCRIPTION)
    parser.usage = USAGE
    parser.add_argument("--bind", metavar="HOST:PORT", help="where to listen (127.0.0.1:8787); port 0 takes a free one")
    add_model_flags(parser)
    add_config_flag(parser)
    options = parser.parse_args(arguments)
    settings = configuration(options).settings
    bind = Bind.read(options.bind or settings.gateway.bind)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("ferrule.egress").setLevel(logging.INFO)  # whom containers were not let to
    asyncio.run(_until_signal(settings, bind))
    return DONE


async def _until_signal(settings: Settings, bind: Bind) -> None:
    from ferrule.doors.gateway.serve import serve
    from ferrule.store import StoreInUse

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    try:
        await serve(settings, bind, state_file(settings.home), _tell, stop)
    except StoreInUse as error:
        raise UsageError(str(error)) from error


def _collect_less() -> None:
    """Let the garbage collector run less often, and not look at what is loaded: with a thousand streams at once it took
    a quarter of the time, for objects that nearly all go without it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


def _tell(url: str) -> None:
    allow_open_files()
    _collect_less()
    print(f"ferrule serves {url}", file=sys.stderr, flush=True)


def _keys(arguments: list[str]) -> int:
    match arguments[:1]:
        case ["list"]:
            Parser("serve keys list", "Print the names of all keys.").parse_args(arguments[1:])
            asyncio.run(_list())
        case ["add"]:
            asyncio.run(_add(_name("serve keys add", "Make a key and print it, this once.", arguments[1:])))
        case ["remove"]:
            asyncio.run(_remove(_name("serve keys remove", "Remove a key; what it stored stays.", arguments[1:])))
        case ["-h" | "--help"]:
            print(f"usage: ferrule serve keys list|add|remove ...\n\n{KEYS_USAGE}.")
        case _:
            raise UsageError(KEYS_USAGE)
    return DONE


def _name(command: str, what: str, arguments: list[str]) -> str:
    parser = Parser(command, what)
    parser.add_argument("name", metavar="NAME", help="the project that the key is for")
    name: str = parser.parse_args(arguments).name
    return name


async def _list() -> None:
    async with await _store() as store:
        print("".join(f"{name}\n" for name in await store.keys()), end="")


async def _add(name: str) -> None:
    from ferrule.store import StoreRefusal

    async with await _store() as store:
        try:
            key = await store.add_key(name)
        except StoreRefusal as error:
            raise UsageError(str(error)) from error
        print(f"the key of {name}, shown this once: {key}")


async def _remove(name: str) -> None:
    async with await _store() as store:
        if not await store.remove_key(name):
            raise UsageError(f"there is no key {name!r}; `ferrule serve keys list` lists them")


async def _store() -> "Store":
    from ferrule.store import Store

    return await Store.open(state_file(ferrule_home()), shared=True)
