"""Report for `ferrule doctor` whether containers work on this machine, by making one."""

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec

from ferrule.config import ferrule_home
from ferrule.containers.data_stack import DataStack
from ferrule.containers.host import ContainerSettings, settings_on
from ferrule.containers.images import Image, UnknownImage
from ferrule.containers.images.writable import Way
from ferrule.containers.languages import languages_of
from ferrule.containers.local import IMAGES, LocalHost
from ferrule.protocol.errors import FerruleError
from ferrule.sandbox.linux.cgroups import Groups, find_groups

TRIAL_SECONDS = 20.0
"""A container takes milliseconds; a busy machine much longer."""
TOGETHER = "  limits: memory, processes and processors of a container together, by {}"
WATCHED = "  limits: memory of each process, and of all together by a look five times a second; no limit on processors"
IMAGES_RUN = "  images: changes {}; {}"
NO_IMAGES = "  images: none: {}"
HOW = {Way.OVERLAY: "in an overlay", Way.REFLINK: "in a copy that shares blocks", Way.COPY: "in a whole copy"}
MANY_IDS = "all user ids, none of which is anybody's outside"
GIVEN_IDS = "all user ids, as /etc/subuid gives them to you; one where a folder of yours can be written"
ONE_ID = (
    "one user id (chown, su and the image's user cannot work; as an ordinary user that takes the package uidmap and "
    "65,535 ids or more in /etc/subuid and /etc/subgid)"
)
STACK = "  Python data stack: {}"
NO_STACK = "none: `ferrule runtime build` makes one"
OTHER_PYTHON = "for another Python than this machine's: run `ferrule runtime build` again ({})"
NOT_KNOWN = "none answered"
NO_GROUPS = "  not available: control groups: {}"


async def containers_report(image: Image | None = None) -> list[str]:
    """Make a container, run a command in it, and say what bounds it and which languages it has. `image` is what the
    gateway's containers run on."""
    try:
        async with asyncio.timeout(TRIAL_SECONDS), LocalHost.open() as host:
            container = await host.create(ContainerSettings(temporary=True))
            done = await container.run("echo works")
            told = [f"  languages: {(await languages_of(container)).sentence or NOT_KNOWN}"]
            if image is not None:
                on_image = msgspec.structs.replace(settings_on(image), temporary=True)
                container = await host.create(on_image)
                sentence = (await languages_of(container)).sentence
                told.append(f"  languages on the image {image.name}: {sentence or NOT_KNOWN}")
            images = await _images(host)
    except TimeoutError:
        return [f"Containers: none: a first one did not start in {TRIAL_SECONDS:g} seconds"]
    except (FerruleError, OSError) as error:
        return [f"Containers: none: {error}"]
    if done.stdout.text() != "works\n":
        return [f"Containers: none: a first command failed with code {done.exit_code}: {done.stderr.text().strip()}"]
    groups = await asyncio.to_thread(find_groups)
    limits = [TOGETHER.format(groups.title)] if isinstance(groups, Groups) else [WATCHED, NO_GROUPS.format(groups)]
    return ["Containers: work", *limits, images, *told, STACK.format(_stack())]


async def _images(host: LocalHost) -> str:
    """Start a container on an empty root, and say how images are run."""
    with tempfile.TemporaryDirectory(prefix="ferrule-", dir=host.place.parent) as root:
        try:
            container = await host.create(ContainerSettings(root=root, temporary=True))
        except FerruleError as error:
            return NO_IMAGES.format(error)
        many = MANY_IDS if os.getuid() == 0 else GIVEN_IDS
        return IMAGES_RUN.format(HOW[container.layer], many if container.mapped else ONE_ID)


def _stack() -> str:
    try:
        record = DataStack(Path(ferrule_home(), IMAGES)).get()
    except UnknownImage:
        return NO_STACK
    return record.line() if record.fits else OTHER_PYTHON.format(record.line())
