"""`read_file` as a model calls it."""

import os
import socket
import stat
import time
import tracemalloc
from pathlib import Path

import pytest

from ferrule.builtin.lines import KEPT
from tests.builtin.conftest import Benches


async def read(benches: Benches, path: object, **arguments: object) -> str:
    return await benches("read_file").call("read_file", file_path=str(path), **arguments)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    file = tmp_path / "numbers"
    file.write_text("".join(f"{n}\n" for n in range(1, 6)))
    return file


async def test_lines_are_numbered_from_one(benches: Benches, numbers: Path) -> None:
    assert await read(benches, numbers) == "L1: 1\nL2: 2\nL3: 3\nL4: 4\nL5: 5"
    assert await read(benches, numbers, offset=2, limit=2) == "L2: 2\nL3: 3"
    assert await read(benches, numbers, offset=5, limit=9, mode="slice") == "L5: 5"


async def test_line_ends(benches: Benches, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a\r\nb\r\r\n\nlast\xff\x80")
    assert await read(benches, file) == "L1: a\nL2: b\r\nL3: \nL4: last\ufffd\ufffd"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"offset": 0}, "offset must be a 1-indexed line number"),
        ({"offset": -3}, "offset must be a 1-indexed line number"),
        ({"offset": 1.5}, "offset must be a whole number, not 1.5"),
        ({"offset": 6}, "offset exceeds file length"),
        ({"offset": 1e300}, "offset exceeds file length"),
        ({"limit": 0}, "limit must be greater than zero"),
        ({"limit": -1}, "limit must be greater than zero"),
        ({"mode": "blocks"}, 'mode must be "slice" or "indentation", not \'blocks\''),
        ({"mode": "indentation", "indentation": {"anchor_line": 0}}, "anchor_line must be a 1-indexed line number"),
        ({"mode": "indentation", "indentation": {"anchor_line": 6}}, "anchor_line exceeds file length"),
        ({"mode": "indentation", "indentation": {"max_lines": 0}}, "max_lines must be greater than zero"),
        ({"mode": "indentation", "indentation": {"max_levels": -1}}, "max_levels must not be negative"),
    ],
)
async def test_parameters_out_of_range(
    benches: Benches, numbers: Path, arguments: dict[str, object], text: str
) -> None:
    output = await benches("read_file").output("read_file", file_path=str(numbers), **arguments)
    assert (output.text, output.success) == (text, False)


async def test_places_that_cannot_be_read(benches: Benches, tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "binary").write_bytes(b"a\0b")
    assert await read(benches, "numbers") == "file_path must be an absolute path"
    missing = "failed to read file: No such file or directory (os error 2)"
    assert await read(benches, tmp_path / "none") == missing
    assert await read(benches, tmp_path / "dangling") == missing
    assert await read(benches, tmp_path) == "failed to read file: Is a directory (os error 21)"
    assert "os error 40" in await read(benches, tmp_path / "loop")
    assert (await read(benches, tmp_path / "binary")).endswith("binary is a binary file")


async def test_an_empty_file_reads_as_empty(benches: Benches, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for mode in ("slice", "indentation"):
        output = await benches("read_file").output("read_file", file_path=str(tmp_path / "empty"), mode=mode)
        assert (output.text, output.success) == ("(The file is empty.)", True)
    assert await read(benches, tmp_path / "empty", offset=2) == "offset exceeds file length"
    (tmp_path / "line").write_bytes(b"\n")
    assert await read(benches, tmp_path / "line") == "L1: "


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("\ufeffä\r\nb".encode("utf-16-le"), "L1: ä\nL2: b\n(The file is UTF-16LE. Edits keep that.)"),
        ("\ufeffä\nb\n".encode("utf-16-be"), "L1: ä\nL2: b\n(The file is UTF-16BE. Edits keep that.)"),
        ("\ufeffä\n".encode("utf-32-le"), "L1: ä\n(The file is UTF-32LE. Edits keep that.)"),
        (
            "one\ntwo\n".encode("utf-16-le"),
            "L1: one\nL2: two\n(The file is UTF-16LE, as far as its bytes tell. Edits keep that.)",
        ),
        (
            "日本語です。\n".encode("cp932"),
            "L1: 日本語です。\n(The file is Shift-JIS, as far as its bytes tell. Edits keep that.)",
        ),
        ("\ufeffmarked\n".encode(), "L1: marked"),
    ],
)
async def test_n043_the_encoding_is_named(benches: Benches, tmp_path: Path, data: bytes, shown: str) -> None:
    (tmp_path / "f").write_bytes(data)
    assert await read(benches, tmp_path / "f") == shown


async def test_n043_odd_bytes_far_into_a_file(benches: Benches, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"plain\n" * 20_000 + "größe\n".encode("latin-1"))
    assert (await read(benches, tmp_path / "f", offset=20_001)).startswith("L20001: größe\n(The file is Windows-1252")
    assert await read(benches, tmp_path / "f", offset=2, limit=1) == "L2: plain"


@pytest.mark.parametrize(
    "data", [b"one\rtwo\rthree", "\ufeffone\rtwo\rthree\r".encode("utf-16-le"), b"one\rtwo\rthree \xff"]
)
async def test_n043_carriage_returns_alone_end_lines(benches: Benches, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    assert (await read(benches, tmp_path / "f", offset=2, limit=1)).startswith("L2: two")
    assert (await read(benches, tmp_path / "f", offset=3)).startswith("L3: three")


async def test_n043_a_carriage_return_before_a_late_line_feed_ends_no_line(benches: Benches, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"10%\r" * 3000 + b"\nlast\n")
    assert await read(benches, tmp_path / "f", offset=2) == "L2: last"


async def test_n043_a_damaged_file_is_named(benches: Benches, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\xfea\0\0\0b\0c")
    assert (await read(benches, tmp_path / "f")).endswith("a binary file: it starts like UTF-16LE, and the rest is not")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_permission_denied(benches: Benches, numbers: Path) -> None:
    numbers.chmod(0)
    assert await read(benches, numbers) == "failed to read file: Permission denied (os error 13)"


async def test_b148_what_never_ends_is_not_opened(benches: Benches, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    started = time.monotonic()
    assert await read(benches, tmp_path / "p") == "failed to read file: it is a FIFO, not read"
    assert await read(benches, tmp_path / "s") == "failed to read file: it is a socket, not read"
    assert await read(benches, "/dev/zero") == "failed to read file: it is a device, not read"
    (tmp_path / "link").symlink_to(tmp_path / "p")
    assert await read(benches, tmp_path / "link") == "failed to read file: it is a FIFO, not read"
    for kernel in ("/dev/stdin", "/proc/kmsg", "/proc/self/mem"):
        await read(benches, kernel)
    assert time.monotonic() - started < 30
    listening.close()


async def test_files_of_the_kernel_are_for_commands(benches: Benches) -> None:
    """There the agent's own process is shown, with its keys."""
    said = await read(benches, "/proc/self/status", limit=1)
    assert said.startswith("failed to read file: /proc/self/status lies on a file system of the kernel (proc)")


async def test_b046_a_long_line_is_cut_on_a_character_and_marked(benches: Benches, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("needle " + "x" * 120_000 + "\n" + "é" * 400 + "\nshort\n")
    first, second, third = (await read(benches, file)).split("\n")
    assert first == "L1: needle " + "x" * 493 + " [line cut]"
    assert second == "L2: " + "é" * 250 + " [line cut]"
    assert third == "L3: short"
    file.write_text("x" + "é" * 250)
    assert await read(benches, file) == "L1: x" + "é" * 249 + " [line cut]"


async def test_a_sparse_file_is_not_read_through(benches: Benches, tmp_path: Path) -> None:
    file = tmp_path / "sparse"
    with file.open("wb") as out:
        out.truncate(10 * 2**30)
    started = time.monotonic()
    assert (await read(benches, file)).endswith("is a binary file")
    with file.open("r+b") as out:
        out.write(b"text\n" * 2000)
        out.seek(0, os.SEEK_END)
        out.write(b"\nafter\n")
    assert await read(benches, file, offset=2002) == "L2002: after"
    assert (await read(benches, file, offset=2001)).startswith("L2001: \0\0")
    assert time.monotonic() - started < 30


async def test_memory_stays_flat(benches: Benches, tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as out:
        for _ in range(40):
            out.write(b"some words on a line of fifty bytes or nearly so..\n" * 20_000)
        out.write(b"y" * 30_000_000 + b"\nend\n")
    bench = benches("read_file")
    tracemalloc.start()
    text = await bench.call("read_file", file_path=str(file), offset=800_001)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text.split("\n")[1] == "L800002: end"
    assert peak < 5_000_000 > KEPT


async def test_odd_names(benches: Benches, tmp_path: Path) -> None:
    for name in ("a\nb", "with space", os.fsdecode(b"bad\xff"), "ünï", "-rf", "$(x)"):
        (tmp_path / name).write_text("inside")
    assert await read(benches, tmp_path / "a\nb") == "L1: inside"
    assert await read(benches, tmp_path / "-rf") == "L1: inside"
    assert stat.S_ISREG((tmp_path / "ünï").stat().st_mode)
    assert await read(benches, tmp_path / "ünï") == "L1: inside"


CODE = """\
# module
class One:
    x = 1

    # a header
    def first(self):
        if self.x:
            return 1

        return 2

    def second(self):
        return 3


class Two:
    pass
"""


async def block(benches: Benches, tmp_path: Path, anchor: int, **options: object) -> list[int]:
    file = tmp_path / "code.py"
    file.write_text(CODE)
    text = await read(benches, file, mode="indentation", indentation={"anchor_line": anchor, **options})
    return [int(line[1:].partition(":")[0]) for line in text.split("\n")]


async def test_indentation_takes_the_block_and_its_header(benches: Benches, tmp_path: Path) -> None:
    assert await block(benches, tmp_path, 8, max_levels=1) == [7, 8]
    assert await block(benches, tmp_path, 8, max_levels=2) == list(range(5, 11))
    assert await block(benches, tmp_path, 8, max_levels=2, include_siblings=True) == list(range(3, 14))
    assert await block(benches, tmp_path, 8) == list(range(1, 14))
    assert await block(benches, tmp_path, 8, include_header=False) == list(range(2, 14))
    assert await block(benches, tmp_path, 8, max_lines=1) == [8]
    assert await block(benches, tmp_path, 8, max_lines=3) == [7, 8]


JAVASCRIPT = """\
// shop
function cart() {
  const items = [];
  // adds
  function add(item) {
    if (item) {
      items.push(item);
    }
    return items;
  }
  function size() {
    return items.length;
  }
  return { add, size };
}
function other() {
  return 1;
}
"""
NESTED = """\
def outer():
    before = 1
    def inner():
        return before
    def second():
        return 2
    return inner
def next_one():
    pass
"""


@pytest.mark.parametrize(
    ("code", "anchor", "options", "lines"),
    [
        (JAVASCRIPT, 7, {"max_levels": 1}, [6, 7, 8]),
        (JAVASCRIPT, 7, {"max_levels": 2}, list(range(4, 11))),
        (JAVASCRIPT, 7, {"max_levels": 2, "include_header": False}, list(range(5, 11))),
        (JAVASCRIPT, 7, {"max_levels": 3}, list(range(1, 16))),
        (JAVASCRIPT, 7, {}, list(range(1, 16))),
        (JAVASCRIPT, 7, {"max_levels": 2, "include_siblings": True}, list(range(3, 15))),
        (JAVASCRIPT.replace("  ", "\t"), 7, {"max_levels": 1}, [6, 7, 8]),
        (JAVASCRIPT, 2, {}, list(range(1, 16))),
        (JAVASCRIPT, 15, {}, list(range(1, 16))),
        (NESTED, 4, {"max_levels": 1}, [3, 4]),
        (NESTED, 4, {"max_levels": 2}, list(range(1, 8))),
        (NESTED, 4, {"max_levels": 9}, list(range(1, 8))),
        (NESTED, 8, {}, [8, 9]),
        (NESTED, 6, {"max_levels": 1}, [5, 6]),
    ],
)
async def test_f22_levels_are_the_real_indents_and_only_a_closing_line_follows(
    benches: Benches, tmp_path: Path, code: str, anchor: int, options: dict[str, object], lines: list[int]
) -> None:
    file = tmp_path / "code"
    file.write_text(code)
    text = await read(benches, file, mode="indentation", indentation={"anchor_line": anchor, **options})
    assert [int(line[1:].partition(":")[0]) for line in text.split("\n")] == lines


async def test_indentation_deep_in_a_long_file(benches: Benches, tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    file.write_text("x = 1\n" * 100_000 + "def f():\n    a = 1\n    b = 2\n\n" + "y = 1\n" * 100_000)
    text = await read(
        benches, file, mode="indentation", indentation={"anchor_line": 100_003, "max_levels": 0, "max_lines": 5}
    )
    assert [line.split(":")[0] for line in text.split("\n")] == ["L100001", "L100002", "L100003"]


@pytest.mark.parametrize("before", [997, 998, 999, 1000, 1021, 1022, 1023, 1024, 8190, 8191])
async def test_n050_a_character_across_the_bytes_that_are_looked_at(
    benches: Benches, tmp_path: Path, before: int
) -> None:
    file = tmp_path / "f"
    file.write_text("x" * before + "\n" + "\u4e2d" * 20 + "\n")
    assert (await read(benches, file)).endswith("L2: " + "\u4e2d" * 20)
