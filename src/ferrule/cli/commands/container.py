"""`ferrule container`: run your own command in a container, list containers, remove them."""

import os
import re
import sys
import time
from argparse import Namespace
from contextlib import nullcontext

import msgspec

from ferrule.cli.commands.runtime import images_folder
from ferrule.cli.options import Parser, split_command
from ferrule.cli.passing import our_streams, pass_through, raw_terminal
from ferrule.cli.running import run_interruptibly
from ferrule.containers import Container, ContainerInfo, ContainerSettings, LocalHost
from ferrule.containers.host import MEMORY_BYTES, settings_on
from ferrule.containers.images import Image, Images
from ferrule.process.launcher import Limits, Pty
from ferrule.protocol.errors import UsageError
from ferrule.sandbox.linux.root import DATA, Bind, checked_bind

USAGE = "`ferrule container` knows `run -- COMMAND`, `list` and `rm ID`"
DESCRIPTION = """\
Run a command in a container: a private root with the system's programs, an empty folder /mnt/data, no network and no
file of yours. It needs neither root nor Docker. The container ends with the command, unless you keep it."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)([kmg]?)b?", re.IGNORECASE)


def main(arguments: list[str]) -> int:
    """Run, list or remove. Raises `ContainerError`."""
    match arguments[:1]:
        case ["run"]:
            return _run(arguments[1:])
        case ["list"]:
            return _list(arguments[1:])
        case ["rm"]:
            return _remove(arguments[1:])
        case ["-h" | "--help"]:
            print(f"usage: ferrule container run|list|rm ...\n\n{USAGE}; each says more with --help.")
            return 0
        case _:
            raise UsageError(USAGE)


def _run(arguments: list[str]) -> int:
    parser = Parser("container run", DESCRIPTION)
    parser.add_argument("--root", metavar="DIR", help="a whole file system (an unpacked image) to run instead")
    parser.add_argument("--image", metavar="NAME", help="an image that `ferrule runtime import` has unpacked")
    parser.add_argument("--memory", type=_size, default=MEMORY_BYTES, metavar="SIZE", help="like 512m or 4g (1g)")
    parser.add_argument("--cpus", type=float, metavar="N", help="processors, like 1.5")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of the command")
    parser.add_argument(
        "--mount", action="append", default=[], metavar="DIR:TARGET[:rw]", help="show a folder of yours inside"
    )
    parser.add_argument("--keep", action="store_true", help="keep the container for 20 minutes, and print its id")
    parser.add_argument("--in", dest="container", metavar="ID", help="run in a container that was kept")
    parser.epilog = "The command follows --: ferrule container run -- python3 -c 'print(1)'"
    own, command = split_command(arguments)
    options = parser.parse_args(own)
    if not command:
        raise UsageError("give the command after --, like `ferrule container run -- python3 -V`")
    if options.root and options.image:
        raise UsageError("--root and --image both name what is inside: give one of them")
    image_of = Images(images_folder()).using(options.image) if options.image else nullcontext()
    with image_of as image:
        return _run_on(options, command, image)


def _run_on(options: Namespace, command: list[str], image: Image | None) -> int:
    """Run on an image, or without one, as the options say."""
    root = options.root and os.path.abspath(options.root)
    chosen = settings_on(image)
    settings = msgspec.structs.replace(
        chosen,
        root=chosen.root or root,
        memory_bytes=options.memory,
        cpus=options.cpus,
        env={**chosen.env, **dict(map(_variable, options.env))},
        binds=tuple(map(_mount, options.mount)),
        temporary=not options.keep,
    )
    cwd = (image.config.working_dir if image else "") or DATA
    return run_interruptibly(_command(command, settings, options.container, cwd))


async def _command(command: list[str], settings: ContainerSettings, container_id: str | None, cwd: str) -> int:
    async with LocalHost.open() as host:
        container = await (host.create(settings) if container_id is None else host.get(container_id))
        if container_id is None and not settings.temporary:
            _tell(container.id)
        return await _passed(container, command, settings.env, cwd)


async def _passed(container: Container, command: list[str], env: dict[str, str], cwd: str) -> int:
    stdio = our_streams()
    child = await container.launch(command, {**container.environment, **env}, cwd, stdio, Limits())
    with raw_terminal(child) if isinstance(stdio, Pty) else nullcontext():
        code, _ = await pass_through(child)
    for notice in container.take_notices():
        _tell(notice)
    return code


def _list(arguments: list[str]) -> int:
    Parser("container list", "Print the containers of all your processes, the oldest first.").parse_args(arguments)
    found = run_interruptibly(_found())
    for info in found:
        left = max(info.expires_at - time.time(), 0) / 60
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.created_at))
        print(f"{info.id}  {made}  {info.settings.root or '-'}  ends in {left:.0f} min unless used")
    if not found:
        print("there is no container", file=sys.stderr)
    return 0


async def _found() -> tuple[ContainerInfo, ...]:
    async with LocalHost.open() as host:
        return await host.list()


def _remove(arguments: list[str]) -> int:
    parser = Parser("container rm", "End containers and remove their files.")
    parser.add_argument("ids", nargs="+", metavar="ID")
    run_interruptibly(_removed(parser.parse_args(arguments).ids))
    return 0


async def _removed(ids: list[str]) -> None:
    async with LocalHost.open() as host:
        for container_id in ids:
            await host.remove(container_id)


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if not found:
        raise UsageError(f"{text!r} is no size: give a number of bytes, or one with k, m or g, like 512m")
    return int(found[1]) * _UNITS[found[2].lower()]


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{text!r} is no variable: write NAME=VALUE")
    return name, value


def _mount(text: str) -> Bind:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if mode not in ("", "ro", "rw"):
        raise UsageError(f"{mode!r} is no way to mount: write ro or rw")
    return checked_bind(Bind(source, target or source, mode == "rw"))


def _tell(text: str) -> None:
    print(f"ferrule: {text}", file=sys.stderr)
