"""Bytes on their way from a blob to the disk: checked, unpacked, and never whole in memory."""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import IO, Protocol

from ferrule.containers.images.errors import ImageError
from ferrule.containers.images.limits import ImportLimits

BLOCK = 1 << 18
"""Bytes that are read and unpacked at a time: large enough that Python's own cost does not show."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
NO_ZSTD = "its layers are packed with zstd: pip install 'ferrule[zstd]' (Python 3.14 needs nothing)"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
"""How a frame of zstd begins that holds no data."""
_OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
_WITH_HEADER = 16 + zlib.MAX_WBITS


class Readable(Protocol):
    """A stream of bytes, packed or unpacked."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        ...


def checked_digest(text: str) -> str:
    """Return a digest as it is. Raises `ImageError` unless it is one that we can check: it becomes a path, too."""
    if not DIGEST.fullmatch(text):
        raise ImageError(
            f"{text[:80]!r} is not a digest of SHA-256 or SHA-512: the image is damaged or of another kind"
        )
    return text


def blocks_of(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Read the next `size` bytes of a file."""
    while size > 0 and (block := file.read(min(BLOCK, size))):
        size -= len(block)
        yield block


def verified(blocks: Iterable[bytes], digest: str, size: int | None = None) -> Iterator[bytes]:
    """Pass the blocks on. Raises `ImageError` after the last one if they are not what the digest and the size say."""
    algorithm, _, expected = checked_digest(digest).partition(":")
    count, found = 0, hashlib.new(algorithm, usedforsecurity=True)
    for block in blocks:
        count += len(block)
        if size is not None and count > size:
            break
        found.update(block)
        yield block
    if size is not None and count != size:
        raise ImageError(f"{digest} has {count:,} bytes or more, not {size:,}: fetch the image again")
    if found.hexdigest() != expected:
        raise ImageError(f"the content of {digest} is another one: it is damaged or was changed; fetch the image again")


def unpacked(blocks: Iterator[bytes], limits: ImportLimits) -> Iterator[bytes]:
    """Yield what the blocks hold: they are plain, or packed with gzip or zstd, as their first bytes say.

    Raises `ImageError` if they are damaged, or unpack to too much.
    """
    packed = 0

    def counted() -> Iterator[bytes]:
        nonlocal packed
        for block in blocks:
            packed += len(block)
            yield block

    total = 0
    for block in _unpacker(counted()):
        total += len(block)
        if total > limits.free_bytes and total > packed * limits.ratio:
            raise ImageError(f"a layer unpacks to more than {limits.ratio} times its size: it is not imported")
        yield block


def _unpacker(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    again = _chained(first, blocks)
    if first.startswith(_GZIP):
        return _gunzipped(again)
    if first.startswith(_ZSTD) or _SKIPPABLE.match(first):
        return _unzstd(again)
    for magic, name in _OTHERS.items():
        if first.startswith(magic):
            raise ImageError(f"a layer is packed with {name}, which images may not be: repack it with gzip")
    return again


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _gunzipped(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack gzip, of several members, too. Zeros may follow."""
    inflate = zlib.decompressobj(_WITH_HEADER)
    try:
        for block in blocks:
            data = block
            while data:
                if inflate.eof:
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    inflate = zlib.decompressobj(_WITH_HEADER)
                if piece := inflate.decompress(data, BLOCK):
                    yield piece
                data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        while not inflate.eof and (piece := inflate.decompress(b"", BLOCK)):
            yield piece
    except zlib.error as error:
        raise ImageError(f"a layer is no proper gzip ({error}): fetch the image again") from error
    if not inflate.eof:
        raise ImageError("a layer ends too early: fetch the image again")


def _unzstd(blocks: Iterator[bytes]) -> Iterator[bytes]:
    open_reader, failure = _zstd()
    reader = open_reader(Pipe(blocks))
    try:
        while block := reader.read(BLOCK):
            yield block
    except (failure, EOFError) as error:
        raise ImageError(f"a layer is no proper zstd ({error}): fetch the image again") from error


def _zstd() -> tuple[Callable[[Readable], Readable], type[Exception]]:
    try:
        standard = import_module("compression.zstd")
        return standard.ZstdFile, standard.ZstdError
    except ModuleNotFoundError:
        pass
    try:
        extra = import_module("zstandard")
    except ModuleNotFoundError as error:
        raise ImageError(NO_ZSTD) from error
    return lambda source: extra.ZstdDecompressor().stream_reader(source, read_across_frames=True), extra.ZstdError


class Pipe:
    """Blocks, read like a file, or exactly so many bytes at a time."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._block = b""
        self._at = 0

    def read(self, size: int = BLOCK) -> bytes:
        """Return at most `size` bytes; none at the end."""
        if self._at >= len(self._block):
            self._block, self._at = next(self._blocks, b""), 0
        start, self._at = self._at, self._at + size
        return self._block if not start and size >= len(self._block) else self._block[start : self._at]

    def skip(self, size: int) -> None:
        """Pass over so many bytes, or all that there are."""
        while size > 0 and (piece := self.read(min(size, BLOCK))):
            size -= len(piece)

    def drain(self) -> None:
        """Read to the end, so that digests are checked."""
        self._at = len(self._block)
        for _ in self._blocks:
            pass


class FilePipe:
    """A file that is passed over by seeking."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = BLOCK) -> bytes:
        """Return at most `size` bytes; none at the end."""
        return self._file.read(size)

    def skip(self, size: int) -> None:
        """Pass over so many bytes."""
        self._file.seek(size, 1)
