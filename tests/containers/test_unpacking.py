"""Layers on disk: what each kind of entry becomes, what layers do to those below, and what archives may not do."""

import os
import stat
import tarfile
from pathlib import Path

import pytest

from ferrule.containers.images import Image, ImageError, Images, Owner, read_owners
from tests.containers.layouts import Made, entry, file, folder, layer, layout, link, symlink


def unpacked(tmp_path: Path, *layers: bytes) -> Image:
    return Images(tmp_path / "store").import_(layout(tmp_path / "layout", *layers), "demo")


def tree(root: Path) -> dict[str, str]:
    """Everything below a root: contents of files, targets of links."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = "/" if path.is_dir() else path.read_text(errors="replace")
    return found


def test_kinds_of_entries(tmp_path: Path) -> None:
    image = unpacked(
        tmp_path,
        layer(
            folder("./"),
            folder("bin/", 0o700),
            file("bin/tool", b"#!", 0o755),
            link("bin/alias", "bin/tool"),
            symlink("usr", "/etc"),
            file("implied/parents/file", b"x"),
            entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
            entry("dev/sda", tarfile.BLKTYPE, devmajor=8),
            entry("run/pipe", tarfile.FIFOTYPE),
            file("closed", b"c", 0o000),
            folder("shut", 0o000),
            file("shut/inside", b"i"),
        ),
    )
    root = image.root
    assert tree(root) == {
        "bin": "/",
        "bin/alias": "#!",
        "bin/tool": "#!",
        "closed": "c",
        "implied": "/",
        "implied/parents": "/",
        "implied/parents/file": "x",
        "shut": "/",
        "shut/inside": "i",
        "usr": "-> /etc",
    }
    assert (root / "bin/tool").stat().st_ino == (root / "bin/alias").stat().st_ino
    assert stat.S_IMODE((root / "bin/tool").stat().st_mode) == 0o755
    assert (root / "bin/tool").stat().st_mtime == (root / "bin").stat().st_mtime == 1_600_000_000
    assert image.left_out == {"devices": 2, "named pipes": 1}
    assert dict(read_owners(image.owners)) == {"closed": Owner(0, 0, 0), "shut": Owner(0, 0, 0)}
    assert stat.S_IMODE((root / "closed").stat().st_mode) == 0o600
    assert stat.S_IMODE((root / "shut").stat().st_mode) == 0o700


def test_owners_and_special_bits_stand_in_the_table(tmp_path: Path) -> None:
    image = unpacked(
        tmp_path,
        layer(
            file("su", b"", 0o4755),
            file("mail", b"", 0o2755, uid=3, gid=8),
            folder("gone", uid=9),
            file("gone/too", uid=9),
            file("root", uid=5),
            link("mail2", "mail"),
        ),
        layer(file(".wh.gone"), file("root"), file("far", uid=4_000_000_000)),
    )
    assert dict(read_owners(image.owners)) == {
        "su": Owner(0, 0, 0o4755),
        "mail": Owner(3, 8, 0o2755),
        "mail2": Owner(3, 8, 0o2755),
        "far": Owner(4_000_000_000, 0, 0o644),
    }
    assert stat.S_IMODE((image.root / "su").stat().st_mode) == 0o755
    assert not image.owned


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_root_gives_files_to_their_owners(tmp_path: Path) -> None:
    source = layout(
        tmp_path / "layout", layer(file("a", uid=3, gid=8, mode=0o4755), symlink("l", "a"), folder("d", uid=7))
    )
    image = Images(tmp_path / "store").import_(source, "demo", own=True)
    assert image.owned
    found = (image.root / "a").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (3, 8, 0o755)
    assert (image.root / "d").stat().st_uid == 7


def test_attributes(tmp_path: Path) -> None:
    info, data = file("a", b"x")
    info.pax_headers = {
        f"SCHILY.xattr.{name}": "value"
        for name in ("user.note", "user.overlay.redirect", "security.capability", "trusted.overlay.opaque")
    }
    image = unpacked(tmp_path, layer((info, data)))
    kept = [name for name in os.listxattr(image.root / "a") if not name.startswith("security.")]
    assert kept in (["user.note"], [])  # a file system may have none
    assert image.left_out.pop("attributes security.*") == image.left_out.pop("attributes trusted.*") == 1
    assert image.left_out.pop("attributes user.*") in (1, 2)


def test_names_that_are_long_or_no_text(tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9")
    long = "/".join(["x" * 200] * 6)
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        entries = [file(f"{long}/{odd}", b"deep"), symlink("link", long), link("hard", f"{long}/{odd}")]
        image = Images(tmp_path / "store").import_(
            layout(tmp_path / f"layout{form}", layer(*entries, form=form)), f"demo{form}"
        )
        assert (image.root / long / odd).read_text() == (image.root / "hard").read_text() == "deep"
        assert os.readlink(image.root / "link") == long


def sparse_gnu() -> bytes:
    """A sparse file in GNU's own format: 6 pieces, so that the map goes on after the header."""
    pieces = [(number * 100_000, 600) for number in range(6)]
    info = tarfile.TarInfo("holes")
    info.mode = 0o644
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[124:136] = b"%011o\0" % (600 * 6)
    for place, piece in enumerate(pieces[:4]):
        header[386 + 24 * place : 410 + 24 * place] = b"%011o\0%011o\0" % piece
    header[482] = 1
    header[483:495] = b"%011o\0" % 600_000
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    more = b"".join(b"%011o\0%011o\0" % piece for piece in pieces[4:]).ljust(512, b"\0")
    return bytes(header) + more + (b"data!!" * 600).ljust(4096, b"\0") + bytes(1024)


def sparse_pax(version: int) -> bytes:
    """The three formats of PAX: pairs of records, one record, before the data."""
    pieces = [(0, 6), (100_000, 594), (500_000, 3000)]
    told = {"GNU.sparse.realsize": "600000", "GNU.sparse.name": "holes"}
    data = b"data!!" * 600
    if version == 1:
        told |= {"GNU.sparse.major": "0", "GNU.sparse.minor": "1"}
        told["GNU.sparse.map"] = ",".join(f"{offset},{length}" for offset, length in pieces)
    elif version == 2:
        told |= {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        text = "".join(f"{number}\n" for number in (3, *(number for piece in pieces for number in piece)))
        data = text.encode().ljust(512, b"\0") + data
    info, _ = file("GNUSparseFile.1/holes", data)
    info.size, info.pax_headers = len(data), told
    return layer((info, data))


@pytest.mark.parametrize("form", ["gnu", "0.1", "1.0"])
def test_sparse_files(tmp_path: Path, form: str) -> None:
    image = unpacked(tmp_path, sparse_gnu() if form == "gnu" else sparse_pax(1 if form == "0.1" else 2))
    whole = (image.root / "holes").read_bytes()
    assert len(whole) == 600_000
    assert whole.replace(b"\0", b"") == b"data!!" * 600
    assert whole[500_000:500_006] == b"data!!"
    assert (image.root / "holes").stat().st_blocks * 512 < 600_000


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_long_name_that_is_cut_off_after_a_slash(tmp_path: Path, form: int) -> None:
    name = "a" * 99 + "/b"
    image = unpacked(tmp_path, layer(file(name, b"content"), file("c", b"next"), form=form))
    assert ((image.root / name).read_bytes(), (image.root / "c").read_bytes()) == (b"content", b"next")


LOWER = layer(folder("d"), file("d/1"), file("d/2"), folder("d/s"), file("d/s/3"), file("f"), symlink("l", "d"))


@pytest.mark.parametrize(
    ("upper", "left"),
    [
        ([file("d/.wh.1")], "d d/2 d/s d/s/3 f l"),
        ([file(".wh.d")], "f l"),
        ([file(".wh.l"), file(".wh.nothing")], "d d/1 d/2 d/s d/s/3 f"),
        ([file("d/.wh..wh..opq"), file("d/4")], "d d/4 f l"),
        ([file("d/4"), file("d/.wh..wh..opq")], "d d/4 f l"),
        ([file("d/s/4"), file("d/.wh..wh..opq")], "d d/s d/s/4 f l"),
        ([file("d/1", b"new"), file("d/.wh.1")], "d d/1 d/2 d/s d/s/3 f l"),
        ([folder("d"), file("d/s/4"), file(".wh.d")], "d d/s d/s/4 f l"),
        ([file(".wh.d"), folder("d"), file("d/4")], "d d/4 f l"),
        ([file("d", b"file now")], "d f l"),
        ([folder("f"), file("f/1")], "d d/1 d/2 d/s d/s/3 f f/1 l"),
        ([folder("l"), file("l/1")], "d d/1 d/2 d/s d/s/3 f l l/1"),
        ([symlink("d", "f"), file("d.1")], "d d.1 f l"),
        ([symlink("d", "."), file("d/.wh..wh..opq")], "d"),
        ([file(".wh..wh..opq")], ""),
        ([entry("f", tarfile.CHRTYPE)], "d d/1 d/2 d/s d/s/3 l"),
        ([file("f", b"1"), file("f", b"2")], "d d/1 d/2 d/s d/s/3 f l"),
        ([file(".wh..wh.aufs"), folder(".wh..wh.plnk"), file(".wh..wh.plnk/1")], "d d/1 d/2 d/s d/s/3 f l"),
        ([folder("d"), link("d/f", "f")], "d d/1 d/2 d/f d/s d/s/3 f l"),
    ],
)
def test_a_layer_over_another(tmp_path: Path, upper: list[Made], left: str) -> None:
    assert " ".join(tree(unpacked(tmp_path, LOWER, layer(*upper)).root)) == left


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([file("../out")], "leads out of the image"),
        ([file("a/../../out")], "leads out of the image"),
        ([file("/out")], "leads out of the image"),
        ([symlink("a", "b"), symlink("b", "a"), file("a/x")], "links go in a circle"),
        ([symlink("a", "a/a"), file("a/x")], "links go in a circle"),
        ([symlink("a", "x/" * 127), file("a/y/z")], "129 folders; 128 are allowed"),
        ([file("a"), file("a/b")], "where a is no folder"),
        ([file("a/.wh...")], "which is no name"),
        ([file("a/.wh..")], "which is no name"),
        ([file(".wh.")], "which is no name"),
        ([file(".wh.a/b")], "below a name that means a removed file"),
        ([link("a", "../../secret")], "leads out of the image"),
        ([link("a", "/etc/passwd")], "leads out of the image"),
        ([symlink("s", "/etc"), link("a", "s/passwd")], "a hard link to etc/passwd, which is not there"),
        ([link("a", "a")], "a hard link to a, which cannot be"),
        ([link("a", "b")], "a hard link to b, which is not there"),
        ([folder("d"), link("a", "d")], "a hard link to the folder d"),
        ([link("a", ".")], "which cannot be"),
        ([entry("a", b"Z")], "unknown kind"),
        ([file("x/" * 200 + "a")], "201 folders; 128 are allowed"),
        ([file("x" * 300)], "File name too long"),
        ([file("a", uid=(1 << 32) - 1)], "which no user is"),
        ([entry("a", tarfile.SYMTYPE)], "without a target"),
    ],
)
def test_a_hostile_archive_changes_nothing_outside(tmp_path: Path, entries: list[Made], told: str) -> None:
    (tmp_path / "secret").write_text("secret")
    before = tree(tmp_path)
    with pytest.raises(ImageError, match=told):
        unpacked(tmp_path, layer(*entries))
    assert Images(tmp_path / "store").list() == []
    after = {name: what for name, what in tree(tmp_path).items() if not name.startswith(("layout", "store"))}
    assert after == before
    assert os.listdir(tmp_path / "store") == [".lock"]


@pytest.mark.parametrize(
    ("lower", "upper", "left"),
    [
        ([folder("usr/lib"), symlink("lib", "usr/lib")], [folder("lib"), file("lib/a")], "lib lib/a usr usr/lib"),
        (
            [folder("usr/lib"), symlink("lib", "usr/lib")],
            [file("lib/foo/a")],
            "lib usr usr/lib usr/lib/foo usr/lib/foo/a",
        ),
        ([symlink("a", "/")], [file("a/tmp/out")], "a tmp tmp/out"),
        ([symlink("a", "/tmp")], [file("a/out")], "a tmp tmp/out"),
        ([symlink("a", "../../..")], [folder("a/b"), file("a/b/c")], "a b b/c"),
        ([folder("d"), symlink("d/a", "../../e")], [file("d/a/x")], "d d/a e e/x"),
        ([folder("store"), symlink("a", "..")], [file("a/.wh.store")], "a"),
        ([file("f"), folder("d"), symlink("a", "b"), symlink("b", "/d")], [link("a/f", "f")], "a b d d/f f"),
        ([folder("d"), file("d/f"), symlink("a", "d")], [link("g", "a/f")], "a d d/f g"),
        ([folder("d"), file("d/f"), symlink("a", "d")], [file("a/.wh..wh..opq"), file("a/g")], "a d d/g"),
    ],
)
def test_entries_below_a_link_lie_where_it_leads_inside(
    tmp_path: Path, lower: list[Made], upper: list[Made], left: str
) -> None:
    image = unpacked(tmp_path, layer(*lower), layer(*upper))
    assert " ".join(tree(image.root)) == left
    assert not Path("/tmp/out").exists()


def raw(kind: bytes, size: int, data: bytes = b"") -> bytes:
    """A header that says anything."""
    info = tarfile.TarInfo("x")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = kind
    header[124:136] = b"%011o\0" % size if size >= 0 else b"\xff" + (size & (1 << 88) - 1).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data.ljust(-(-len(data) // 512) * 512, b"\0")


END = bytes(1024)


@pytest.mark.parametrize(
    ("archive", "told"),
    [
        (raw(b"x", 4 << 30) + END, "extended headers have"),
        (raw(b"L", 4 << 30) + END, "extended headers have"),
        (raw(b"g", 600_000, bytes(600_000)) + END, "extended header that is damaged"),
        ((raw(b"L", 400_000, b"y" * 400_000)) * 3 + END, "extended headers have"),
        (raw(b"x", -5) + END, "negative number"),
        (raw(b"0", -5) + END, "negative number"),
        (raw(b"x", 10, b"9 path=a\n") + END, "extended header that is damaged"),
        (raw(b"x", 12, b"99 path=abc\n") + END, "extended header that is damaged"),
        (raw(b"x", 11, b"11 size=-1\n") + raw(b"0", 0) + END, "wrong number"),
        (raw(b"x", 14, b"14 path=a\0b/\n ") + raw(b"0", 0) + END, "leads out of the image|damaged"),
        (raw(b"L", 4, b"abcd"), "ends after an extended header"),
        (raw(b"0", 5000, b"short"), "ends too early"),
        (b"no archive at all" * 100, "it is no tar archive"),
        (raw(b"0", 0)[:100], "ends too early"),
        (raw(b"S", 512, bytes(512)) + END, "do not fit"),
    ],
)
def test_damaged_headers(tmp_path: Path, archive: bytes, told: str) -> None:
    with pytest.raises(ImageError, match=told):
        unpacked(tmp_path, archive)
