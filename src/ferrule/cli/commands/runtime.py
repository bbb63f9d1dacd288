"""`ferrule runtime`: the images that containers run on, and the data stack of those that need none."""

import argparse
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from ferrule.cli.exit_codes import DONE
from ferrule.cli.options import Parser, print_warnings
from ferrule.cli.running import run_interruptibly
from ferrule.config import ferrule_home
from ferrule.containers import ContainerSettings, LocalHost
from ferrule.containers.data_stack import NAME as STACK
from ferrule.containers.data_stack import DataStack
from ferrule.containers.hosted_build import MIRROR, build_hosted
from ferrule.containers.images import Image, Images, UnknownImage
from ferrule.containers.languages import languages_of
from ferrule.containers.local import IMAGES
from ferrule.containers.stack_build import build_stack
from ferrule.containers.subordinate import enter_map
from ferrule.protocol.errors import UsageError
from ferrule.rendering.safe import safe
from ferrule.sandbox.linux.holders import can_map_ids

DESCRIPTION = """\
Import images for containers, list and remove them. An image is an OCI layout (a folder, or a tar of it) or what
`docker save` writes; no daemon is needed, and no root. `build` makes the Python data stack (numpy, pandas, matplotlib,
pillow, openpyxl, pypdf) for containers without an image."""
NOTHING = (
    "there are no images and no data stack; `ferrule runtime import LAYOUT|TAR` unpacks an image, `ferrule runtime "
    "build` makes the data stack"
)
EXAMPLES = """\
docker save python:3.11 -o python.tar && ferrule runtime import python.tar
skopeo copy docker://debian:12 oci:debian && ferrule runtime import debian"""


def main(arguments: list[str]) -> int:
    """Do one thing with the images. Return the exit code. Raises `ImageError`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    images = Images(images_folder())
    if options.action == "import":
        return _import(images, options)
    stack = DataStack(images.store)
    if options.action == "build":
        return _build_hosted(images, options) if options.hosted else _build(stack, options)
    if options.action == "rm":
        stack.remove() if options.name == STACK else images.remove(options.name)
        print(f"removed {options.name}")
        return DONE
    if options.action == "list":
        return _list(images, stack, as_json=options.json)
    raise UsageError("`ferrule runtime` knows build, import, list and rm (see ferrule runtime --help)")


def images_folder() -> Path:
    """Return where this user's images lie."""
    return Path(ferrule_home(), IMAGES)


def _parser() -> Parser:
    parser = Parser("runtime", DESCRIPTION)
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", parser_class=argparse.ArgumentParser)
    imported = actions.add_parser("import", help="unpack an image")
    imported.add_argument("source", metavar="LAYOUT|TAR", help="an OCI layout, or an archive of `docker save`")
    imported.add_argument("--name", metavar="NAME", help="what to call it here; else by its own name")
    imported.add_argument("--ref", metavar="REF", help="which image, if the source has several")
    built = actions.add_parser("build", help="make or update the Python data stack")
    built.add_argument("--hosted", action="store_true", help="make the image `hosted`, like OpenAI's shell, instead")
    built.add_argument("--mirror", metavar="URL", help=f"Debian's packages for --hosted ({MIRROR})")
    built.add_argument("--index-url", metavar="URL", help="the package index; else as pip is configured")
    listed = actions.add_parser("list", help="list the images and the data stack")
    listed.add_argument("--json", action="store_true", help="print one JSON object per line")
    actions.add_parser("rm", help="remove an image").add_argument("name", metavar="NAME")
    return parser


def _import(images: Images, options: argparse.Namespace) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)  # what is half done is removed, as after Ctrl-C
    images.store.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = can_map_ids(images.store) or enter_map()
    image = images.import_(Path(options.source), options.name, reference=options.ref, own=own)
    for what, count in image.left_out.items():
        print_warnings([f"not unpacked: {count} {what}"])
    print(safe(_line(image)))
    return DONE


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _build(stack: DataStack, options: argparse.Namespace) -> int:
    record = run_interruptibly(build_stack(stack, _say, index_url=options.index_url))
    print(safe(f"{STACK}  {record.line()}"))
    return DONE


def _build_hosted(images: Images, options: argparse.Namespace) -> int:
    made = run_interruptibly(build_hosted(images, _say, mirror=options.mirror, index_url=options.index_url))
    print(safe(f"{_line(made)}  {run_interruptibly(_languages(made))}"))
    return DONE


async def _languages(image: Image) -> str:
    settings = ContainerSettings(root=str(image.root), env=image.config.variables, temporary=True)
    async with LocalHost.open() as host:
        return (await languages_of(await host.create(settings))).sentence


def _say(text: str) -> None:
    print(safe(text), file=sys.stderr, flush=True)


def _list(images: Images, stack: DataStack, *, as_json: bool) -> int:
    lines = [(_shown(image), _line(image)) for image in images.list()]
    with suppress(UnknownImage):
        record = stack.get()
        lines.append(({"name": STACK, **msgspec.to_builtins(record)}, f"{STACK}  {record.line()}"))
    for shown, line in lines:
        print(msgspec.json.encode(shown).decode() if as_json else safe(line))
    if not lines and not as_json:
        print(NOTHING, file=sys.stderr)
    return DONE


def _shown(image: Image) -> dict[str, object]:
    told = {field: getattr(image, field) for field in image.__struct_fields__ if field != "owners"}
    return {**told, "root": str(image.root)}


def _line(image: Image) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(image.created_at))
    digest = image.digest.partition(":")[2][:12]
    return f"{image.name}  {when}  {digest}  {image.size / 1e6:,.1f} MB  {image.reference}".rstrip()
