"""Images on the clipboard, by the programs that read it: a terminal hands over no more than text."""

import os
import re
import sys
from collections.abc import Iterator, Mapping

from ferrule.doors.terminal.composer import LONGEST_IMAGE
from ferrule.lookup import locate
from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.sandbox.policy import command_places

SECONDS = 5
"""Seconds for one program: who has copied the image may have to draw it first."""

_WAYLAND = ("wl-paste", "--no-newline", "--type", "image/png")
_X11 = ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")
_MAC = ("pngpaste", "-"), ("osascript", "-e", "get the clipboard as «class PNGf»")
_APPLE_DATA = re.compile(rb"\s*\xc2\xabdata PNGf([0-9A-Fa-f]*)\xc2\xbb\s*")
"""How osascript writes an image."""


def readers(env: Mapping[str, str], platform: str) -> Iterator[tuple[str, ...]]:
    """Yield the programs that can read the clipboard here, as argv."""
    if platform == "darwin":
        yield from _MAC
    if env.get("WAYLAND_DISPLAY"):
        yield _WAYLAND
    if env.get("DISPLAY"):
        yield _X11


async def clipboard_image(settings: Settings) -> bytes:
    """Return the image on the clipboard, as PNG. Raises `UsageError` where there is none, or no program to read it."""
    places = command_places(settings.sandbox_policy, settings.cwd, settings.home)
    names: list[str] = []
    found = False
    for name, *rest in readers(os.environ, sys.platform):
        names.append(name)
        program = locate(name, os.environ.get("PATH"), places).path
        if program is not None:
            found = True
            if data := await _output([program, *rest]):
                return data
    if found:
        raise UsageError("there is no image on the clipboard")
    if not names:
        raise UsageError("there is no clipboard here: paste or drop the path of an image")
    raise UsageError(f"to paste an image, install {' or '.join(names)}, or paste the path of an image")


async def _output(argv: list[str]) -> bytes:
    """Return what a program prints; nothing if it fails, as these do without an image. Raises `UsageError`."""
    name = os.path.basename(argv[0])
    try:
        done = await run(
            PlainLauncher(),
            argv,
            env=os.environ,
            cwd="/",
            timeout_ms=SECONDS * 1000,
            capture_bytes=3 * LONGEST_IMAGE,  # osascript writes two characters a byte
        )
    except LaunchError as error:
        raise UsageError(f"{name} cannot be started: {error}") from error
    if done.timed_out:
        raise UsageError(f"{name} has not given the clipboard within {SECONDS} seconds")
    data = done.stdout.head + done.stdout.tail
    if apple := _APPLE_DATA.fullmatch(data):
        data = bytes.fromhex(apple[1].decode())
    if done.stdout.omitted or len(data) > LONGEST_IMAGE:
        raise UsageError(f"the image on the clipboard is larger than {LONGEST_IMAGE // 1024 // 1024} MB")
    return data if done.status.code == 0 else b""
