"""Images by a program of the user's, confined: it reads the disk, and writes nothing but a folder of its own."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ferrule.image_generation.backend import MAX_BYTES, ImageFailed, ImageRequest, PartialTaker, Sent
from ferrule.image_generation.folder import private_folder
from ferrule.images import read_header
from ferrule.lookup import NOWHERE, Places, locate
from ferrule.process.environment import CORE_VARIABLES
from ferrule.process.launcher import Launcher, LaunchError, Limits
from ferrule.process.run import Completed, run
from ferrule.reading import Unreadable, read_inside
from ferrule.sync import uninterrupted

log = logging.getLogger("ferrule.images")

MAX_FILE = 1 << 30
"""Bytes of a file that the program writes: the largest image in floating point takes half of it, the disk far more."""
MAX_OUTPUT = 1 << 16
"""Bytes of what the program prints that are kept for the log."""


class Confined(Launcher, Protocol):
    """A launcher that confines, and belongs to whoever opened it."""

    async def close(self) -> None: ...


Confine = Callable[[str], Awaitable[Confined]]
"""Opens a launcher whose processes can write this folder alone. Raises `UsageError` and `LaunchError`."""


class CommandBackend:
    """A program. It reads a JSON object on its standard input: `prompt`, `model`, the options that were chosen by the
    names of the API, `output_format`, and the paths `image` and `mask` where one is edited; it writes the image to the
    path `output`. It starts in the folder of these files, which is removed afterwards."""

    def __init__(
        self,
        argv: Sequence[str],
        confine: Confine,
        *,
        timeout: float,
        env: Mapping[str, str] = os.environ,
        places: Places = NOWHERE,
    ) -> None:
        """A bare name is never looked up in `places`."""
        self._argv = tuple(argv)
        self._confine = confine
        self._timeout = timeout
        self._env = {name: env[name] for name in CORE_VARIABLES if name in env}
        self._places = places
        self._turn = asyncio.Lock()
        """One at a time: a model fills the memory of a machine."""

    async def make(self, request: ImageRequest, partial: PartialTaker) -> Sent:
        """See `ImageBackend`. There are no images on the way."""
        async with self._turn:
            try:
                return await self._made(request)
            except OSError as error:
                raise self._failed("has no folder to work in", error) from error

    async def aclose(self) -> None:
        """Do nothing: each image has a process of its own."""

    async def _made(self, request: ImageRequest) -> Sent:
        async with private_folder() as folder:
            asked = await asyncio.to_thread(_prepared, request, folder)
            await self._run(asked, folder)
            return Sent(data=await asyncio.to_thread(self._result, folder, _output(request)))

    async def _run(self, asked: bytes, folder: str) -> None:
        name = os.path.expanduser(self._argv[0])
        found = name if "/" in name else locate(name, self._env.get("PATH"), self._places).path
        if found is None:
            raise self._failed("is not installed", name)
        try:
            launcher = await self._confine(folder)
            try:
                done = await self._ended(launcher, (found, *self._argv[1:]), asked, folder)
            finally:
                await uninterrupted(launcher.close())
        except LaunchError as error:
            raise self._failed("cannot be started", error) from error
        if done.timed_out:
            raise self._failed(f"did not end within {self._timeout:g} seconds", done.output.text()[-300:])
        if done.status.code != 0:
            raise self._failed(f"ended with the code {done.status.shell_code}", done.output.text()[-300:])

    async def _ended(self, launcher: Launcher, argv: Sequence[str], asked: bytes, folder: str) -> Completed:
        return await run(
            launcher,
            argv,
            env={**self._env, "TMPDIR": folder},
            cwd=folder,
            stdin=asked,
            timeout_ms=int(self._timeout * 1000),
            capture_bytes=MAX_OUTPUT,
            limits=Limits(file_bytes=MAX_FILE),
        )

    def _result(self, folder: str, name: str) -> bytes:
        try:
            return read_inside(folder, name, MAX_BYTES)
        except FileNotFoundError as error:
            raise self._failed("wrote no image", error) from error
        except Unreadable as error:
            raise self._failed(f"wrote something else than an image: {name} {error}", error) from error

    def _failed(self, what: str, why: object) -> ImageFailed:
        log.warning("the image command %s: %s", what, why)
        return ImageFailed(f"The image command {what}.")


def _output(request: ImageRequest) -> str:
    return f"output.{request.output_format}"


def _prepared(request: ImageRequest, folder: str) -> bytes:
    """Write the images that are edited. Returns what the program is told."""
    told: dict[str, object] = {"prompt": request.prompt, "model": request.model, **request.options()}
    told |= {"output_format": request.output_format, "output": os.path.join(folder, _output(request))}
    for name, data in (("image", request.image), ("mask", request.mask)):
        if data is not None:
            header = read_header(data)
            path = Path(folder, f"{name}.{header.mime.partition('/')[2] if header else 'bin'}")
            path.write_bytes(data)
            told[name] = str(path)
    return msgspec.json.encode(told)
