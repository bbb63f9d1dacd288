"""What a skill may hold is a list of good things; all else is refused with a sentence, before it touches the disk."""

import io
import resource
import stat
import struct
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.hosted.bundles import (
    MOST_BYTES,
    MOST_FILES,
    BadBundle,
    BundleFile,
    bundle_of,
    read_bundle,
    write_files,
    zip_of,
)
from tests.hosted.zips import files, manifest, names_in, skill, special, zipped


def renamed(data: bytes, old: bytes, new: bytes) -> bytes:
    """A zip in which a name was replaced by another of its length, which `zipfile` would not write."""
    assert len(old) == len(new) and data.count(old) == 2
    return data.replace(old, new)


def bomb() -> bytes:
    """A zip of 26 MB, whose sum is wrong: who reads it to its end finds that."""
    data = bytearray(skill(("zeros", bytes(MOST_BYTES + (1 << 20)))))
    data[data.rindex(b"PK\1\2") + 16] ^= 1
    return bytes(data)


def overstated() -> bytes:
    """A zip that says of 26 MB that they are five bytes."""
    data = bytearray(skill(("zeros", bytes(MOST_BYTES + 1))))
    at = data.rindex(b"PK\1\2")
    data[at + 24 : at + 28] = struct.pack("<I", 5)
    return bytes(data)


def endless() -> bytes:
    """A zip of few entries, whose directory is large."""
    entries = [zipfile.ZipInfo(str(name)) for name, _ in files(20)]
    for entry in entries:
        entry.comment = bytes(60_000)
    return skill(*((entry, b"") for entry in entries))


def overlapping() -> bytes:
    """A zip whose fifty files are one content of a megabyte."""
    data = skill(*((f"f{number:02}", bytes(1 << 20) if number == 0 else b"") for number in range(MOST_FILES - 1)))
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        one = source.getinfo("f00")
    whole = bytearray(data)
    at = whole.index(b"PK\1\2")
    while whole[at : at + 4] == b"PK\1\2":
        lengths = struct.unpack("<HHH", whole[at + 28 : at + 34])
        if whole[at + 46 : at + 47] == b"f":
            whole[at + 16 : at + 28] = struct.pack("<III", one.CRC, one.compress_size, one.file_size)
            whole[at + 42 : at + 46] = struct.pack("<I", one.header_offset)
        at += 46 + sum(lengths)
    return bytes(whole)


def quoting() -> bytes:
    """A zip with a file whose name is another one where it lies, 60,000 bytes long."""
    data = bytearray(zipped(("SKILL.md", manifest()), ("x", bytes(60_000)), method=0))
    at = data.rindex(b"PK\3\4")
    data[at + 26 : at + 28] = struct.pack("<H", 60_000)
    return bytes(data)


def nameless() -> bytes:
    """A zip with a file that has no name, which `zipfile` would not write."""
    data = bytearray(skill(("name", b"")))
    at = data.rindex(b"PK\1\2")
    data[at + 28 : at + 32] = struct.pack("<HH", 0, 4)
    data[at + 46 : at + 50] = struct.pack("<HH", 0x9999, 0)
    return bytes(data)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "slip": (lambda: skill(("../x", b"")), "no path within a skill"),
    "slip inside": (lambda: skill(("a/../../x", b"")), "no path within a skill"),
    "absolute": (lambda: skill(("/etc/x", b"")), "no path within a skill"),
    "drive": (lambda: skill(("C:\\x", b"")), "no path within a skill"),
    "backslash": (lambda: skill(("..\\x", b"")), "no path within a skill"),
    "dot": (lambda: skill(("./x", b"")), "no path within a skill"),
    "twice": (lambda: skill(("x", b""), ("x", b"1")), "two files 'x'"),
    "manifest twice": (lambda: skill(("SKILL.md", manifest())), "two files 'SKILL.md'"),
    "file and folder": (lambda: skill(("x", b""), ("x/y", b"")), "'x' is a file and a folder"),
    "link": (lambda: skill((special("l", stat.S_IFLNK | 0o777), b"/etc/passwd")), "a link or a special file"),
    "fifo": (lambda: skill((special("p", stat.S_IFIFO | 0o644), b"")), "a link or a special file"),
    "device": (lambda: skill((special("d", stat.S_IFBLK | 0o644), b"")), "a link or a special file"),
    "linked folder": (lambda: skill((special("l/", stat.S_IFLNK | 0o777), b"")), "a link or a special file"),
    "newline": (lambda: skill(("a\nb", b"")), "cannot be a file's name"),
    "escape": (lambda: skill(("a\x1b[2J", b"")), "cannot be a file's name"),
    "right to left": (lambda: skill(("a\u202etxt", b"")), "cannot be a file's name"),
    "nul": (lambda: renamed(skill(("xyz", b"")), b"xyz", b"x\0z"), "cannot be a file's name"),
    "no name at all": (nameless, "without a name"),
    "two names": (quoting, "cannot be read"),
    "long": (lambda: skill(("x" * 256, b"")), "cannot be a file's name"),
    "long and odd": (lambda: skill(("../" + "\x1b" * 20_000, b"")), "no path within a skill"),
    "deep": (lambda: skill(("/".join("a" * 17), b"")), "cannot be a file's name"),
    "too many": (lambda: skill(*files(MOST_FILES)), "more than 50 files"),
    "too many folders": (lambda: skill(*((f"{name}/", b"") for name, _ in files(1000))), "1001 entries"),
    "endless directory": (endless, "its directory has"),
    "too large": (lambda: zipped(("SKILL.md", manifest()), ("x", bytes(MOST_BYTES)), method=0), "more than 25 MB"),
    "bomb": (bomb, "more than 25 MB"),
    "bomb that lies": (overstated, "cannot be read"),
    "other packing": (lambda: zipped(("SKILL.md", manifest()), method=zipfile.ZIP_LZMA), "other than 'deflate'"),
    "no manifest": (lambda: zipped(("README.md", b"")), "no SKILL.md at the top"),
    "manifest too deep": (lambda: zipped(("a/b/SKILL.md", manifest())), "no SKILL.md at the top"),
    "two folders": (lambda: zipped(("a/SKILL.md", manifest()), ("b/SKILL.md", manifest())), "no SKILL.md at the top"),
    "no head": (lambda: zipped(("SKILL.md", b"Do it.")), "SKILL.md has no head"),
    "no name": (lambda: zipped(("SKILL.md", b"---\ndescription: x\n---\n")), "SKILL.md says no name"),
    "no description": (lambda: zipped(("SKILL.md", b"---\nname: x\n---\n")), "SKILL.md says no description"),
    "name with a path": (lambda: skill(name="../../x"), "cannot be a skill's name"),
    "name of a folder above": (lambda: skill(name=".."), "cannot be a skill's name"),
    "name with a space": (lambda: skill(name="my skill"), "cannot be a skill's name"),
    "long name": (lambda: skill(name="x" * 65), "64 are allowed"),
    "cut off": (lambda: skill()[:-10], "cannot be read"),
    "no zip": (lambda: b"PK\3\4 but no more", "cannot be read"),
    "empty": (lambda: b"", "cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_zip_is_refused(case: str) -> None:
    make, why = BAD[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `zipfile` warns of some of them
        data = make()
    with pytest.raises(BadBundle) as raised:
        read_bundle(data)
    assert why in str(raised.value) and len(str(raised.value)) < 512


def test_a_zip_whose_files_overlap_costs_no_more_than_any_other() -> None:
    with pytest.raises(BadBundle, match=r"25 MB|cannot be read"):
        read_bundle(overlapping())


def test_a_large_directory_takes_neither_time_nor_memory() -> None:
    data = BAD["endless directory"][0]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    with pytest.raises(BadBundle):
        read_bundle(data * 3)
    assert time.process_time() - started < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        (skill(("add.py", b"")), ["SKILL.md", "add.py"]),
        (zipped(("top/", b""), ("top/SKILL.md", manifest()), ("top/in/add.py", b"")), ["SKILL.md", "in/add.py"]),
        (
            zipped(("top/SKILL.md", manifest()), ("__MACOSX/top/._SKILL.md", b"x"), ("top/.DS_Store", b"x")),
            ["SKILL.md"],
        ),
        (skill(("a b/ü.txt", b"")), ["SKILL.md", "a b/ü.txt"]),
        (skill(*files(MOST_FILES - 1)), ["SKILL.md", *(str(name) for name, _ in files(MOST_FILES - 1))]),
    ],
    ids=["flat", "one folder", "from macOS", "other names", "fifty files"],
)
def test_a_good_zip_is_read(data: bytes, paths: list[str]) -> None:
    bundle = read_bundle(data)
    assert ([file.path for file in bundle.files], bundle.name) == (paths, "adder")


def test_files_are_written_as_they_were_and_run_if_they_can(tmp_path: Path) -> None:
    bundle = read_bundle(
        skill((special("bin/run", stat.S_IFREG | 0o711), b"x"), ("deep/er/s.sh", b"#!/bin/sh\n"), ("data", b"\0\1"))
    )
    write_files(tmp_path / "new", bundle.files)
    written = {str(path.relative_to(tmp_path / "new")): path for path in (tmp_path / "new").rglob("*")}
    modes = {name: stat.S_IMODE(path.stat().st_mode) for name, path in written.items() if path.is_file()}
    assert modes == {"SKILL.md": 0o644, "bin/run": 0o755, "deep/er/s.sh": 0o755, "data": 0o644}
    assert written["data"].read_bytes() == b"\0\1"
    assert {stat.S_IMODE(path.stat().st_mode) for path in written.values() if path.is_dir()} == {0o755}


def test_files_that_come_one_by_one_are_held_to_the_same() -> None:
    good = [BundleFile("top/SKILL.md", manifest()), BundleFile("top/add.py", b"")]
    assert [file.path for file in bundle_of(good).files] == ["SKILL.md", "add.py"]
    large = BundleFile("top/x", bytes(MOST_BYTES))
    for bad in (BundleFile("top/../x", b""), BundleFile("/x", b""), BundleFile("", b""), BundleFile("top", b""), large):
        with pytest.raises(BadBundle):
            bundle_of([*good, bad])


def test_what_a_request_says_counts_instead_of_the_head() -> None:
    bundle = read_bundle(zipped(("SKILL.md", b"Do it.")), "doer", "Does it.")
    assert (bundle.name, bundle.description) == ("doer", "Does it.")
    with pytest.raises(BadBundle):
        read_bundle(zipped(("SKILL.md", b"Do it.")), "do/er", "Does it.")


def test_a_zip_that_we_make_is_read_again() -> None:
    given = [BundleFile("top/SKILL.md", manifest()), BundleFile("top/run", b"x", executable=True)]
    packed = zip_of(given)
    assert names_in(packed) == ["top/SKILL.md", "top/run"]
    assert [(file.path, file.executable) for file in read_bundle(packed).files] == [("SKILL.md", False), ("run", True)]
