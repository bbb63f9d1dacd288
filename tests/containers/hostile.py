"""Hostile images at random: entries that reach out, archives that are damaged, documents that lie."""

import gzip
import json
import random
import tarfile
from pathlib import Path

from ferrule.containers.images.tar import RECORD
from tests.containers.layouts import INDEX, LAYER, Layout, Made, as_tar, entry, gz, layer

NAMES = ("a", "b", "c", "d.1", "x" * 255, "x" * 256, "caf\udce9", "new\nline", "\x1b[31m", "-", " ", "%s", "{}")
SPECIAL = (".wh.a", ".wh.b", ".wh..wh..opq", ".wh.", ".wh..", ".wh...", ".wh..wh.aufs", ".", "..", "")
KINDS = (
    *(tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE) * 6, tarfile.LNKTYPE,
    tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, b"Z",
)  # fmt: skip
MODES = (0, 0o644, 0o755, 0o777, 0o1777, 0o4755, 0o2755, 0o7777)
IDS = (0, 1, 1000, 65_534, (1 << 31) - 1, (1 << 32) - 2, (1 << 32) - 1)


class Hostile:
    """Makes images from a random source. `outside` is a folder that the names and links lead to."""

    def __init__(self, dice: random.Random, outside: Path) -> None:
        self._dice = dice
        self._often = dice.choice((0.0, 0.02, 0.3))
        """How often an entry is odd: where most are, the first one ends it all."""
        self._made: list[str] = []
        self._outside = str(outside)
        self._ways = ("..", "../..", "/", "/etc", self._outside, f"{self._outside}/secret", "/proc/self/cwd")

    def path(self) -> str:
        """A path: mostly short, so that entries meet."""
        dice = self._dice
        if dice.random() < self._often / 6:
            return dice.choice((*self._ways, f"a/{'../' * 9}tmp/out", "a/" * 130 + "b", "/".join(["x" * 200] * 30)))
        parts = [dice.choice(NAMES if dice.random() < self._often else NAMES[:4]) for _ in range(dice.randrange(1, 4))]
        if dice.random() < self._often / 2:
            parts[dice.randrange(len(parts))] = dice.choice(SPECIAL)
        elif dice.random() < 0.1:
            parts[-1] = dice.choice(SPECIAL[:3])
        return "/".join(parts)

    def _target(self) -> str:
        """Where a link leads."""
        dice = self._dice
        if self._made and dice.random() < 0.8:
            return dice.choice(self._made)
        return dice.choice(self._ways) if dice.random() < 0.3 else self.path()

    def entry(self) -> Made:
        """Any entry."""
        dice = self._dice
        kind = dice.choice(KINDS[: -1 if dice.random() < self._often else -6])
        data = dice.randbytes(dice.randrange(40)) if kind in (tarfile.REGTYPE, tarfile.AREGTYPE) else b""
        info, data = entry(self.path(), kind, data, mode=dice.choice(MODES))
        info.uid, info.gid = (dice.choice(IDS) if dice.random() < self._often else 0 for _ in range(2))
        if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            info.linkname = (
                self._target() if kind == tarfile.LNKTYPE or dice.random() < 0.5 else dice.choice(self._ways)
            )
        elif kind == tarfile.REGTYPE:
            self._made.append(info.name)
        if dice.random() < self._often / 2:
            info.pax_headers = self._headers()
        return info, data

    def _headers(self) -> dict[str, str]:
        """Extended headers that change what the entry says."""
        return self._dice.choice(
            (
                {"path": self.path()},
                {"path": "a\0b"},
                {"linkpath": self.path()},
                {"size": self._dice.choice(("0", "5", "99999999999", "-1", "x"))},
                {"uid": self._dice.choice(("-1", "4294967295", "1" * 30))},
                {"mtime": self._dice.choice(("-1", "1e9", "9" * 30, "1.5", "nan"))},
                {"GNU.sparse.realsize": self._dice.choice(("5", str(1 << 62))), "GNU.sparse.map": "0,5"},
                {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": self.path()},
                {"SCHILY.xattr.user.x": "y" * self._dice.choice((1, 70_000))},
                {"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.security.capability": "x"},
            )
        )

    def layer(self) -> bytes:
        """A layer, sometimes damaged."""
        dice = self._dice
        form = dice.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
        made: bytes | bytearray = layer(*(self.entry() for _ in range(dice.randrange(1, 14))), form=form)
        if dice.random() < self._often:
            made = self._damaged(bytearray(made))
        return bytes(made)

    def _damaged(self, data: bytearray) -> bytearray:
        """Change some bytes. Sums are made right again where that leads further."""
        dice = self._dice
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(data))
            data[at] = dice.choice((0, 0xFF, 0x80, dice.randrange(256)))
            head = at - at % RECORD
            if data[head : head + RECORD].strip(b"\0"):
                data[head + 148 : head + 156] = b" " * 8
                data[head + 148 : head + 156] = b"%06o\0 " % sum(data[head : head + RECORD])
        return data[: dice.randrange(len(data))] if dice.random() < 0.2 else data

    def image(self, folder: Path) -> Path:
        """An image: a layout in a folder or a tar, whose documents may lie."""
        dice = self._dice
        made = Layout(folder)
        layers = [self.layer() for _ in range(dice.randrange(1, 4))]
        pack, kind = (gz, f"{LAYER}+gzip") if dice.random() < 0.7 else (bytes, LAYER)
        if dice.random() < self._often / 3:
            pack = lambda data: gzip.compress(data)[: dice.randrange(20, 60)]  # noqa: E731  # cut off
        manifest = made.image(layers, pack, kind)
        if dice.random() < 0.1:
            manifest = made.document({"schemaVersion": 2, "manifests": [manifest]}, INDEX)
        if dice.random() < self._often:
            self._lie(folder, manifest)
        where = made.index(manifest)
        return as_tar(where, folder.with_suffix(".tar")) if dice.random() < 0.3 else where

    def _lie(self, folder: Path, manifest: dict[str, object]) -> None:
        """Change what a document says."""
        dice = self._dice
        way = dice.randrange(4)
        if way == 0:
            manifest["digest"] = dice.choice(("sha256:" + "0" * 64, "sha256:../../../etc/passwd", "md5:0", "", "x\n"))
        elif way == 1:
            manifest["size"] = dice.choice((0, -1, 1 << 62))
        else:
            blobs = sorted((folder / "blobs").rglob("*/*"))
            blob = dice.choice(blobs)
            data = bytearray(blob.read_bytes())
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            blob.write_bytes(data if way == 2 else json.dumps([1, {"a": None}]).encode())
