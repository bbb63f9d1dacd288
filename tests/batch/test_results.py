"""The file of results: appended to, locked, and never changed where it is whole."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from ferrule.batch import results as module
from ferrule.batch.results import Result, ResultsFile, unfinished
from ferrule.protocol.errors import FerruleError, UsageError

ONE = Result(id=1, status="done").line()
TWO = Result(id="zwei", status="error", error="it failed").line()


def opened(path: Path, ours: Iterable[bytes] = ()) -> tuple[ResultsFile, list[tuple[str, str]]]:
    file = ResultsFile(path)
    kept = [("key", line) for line in ours]
    return file, [*file.read(lambda start: unfinished(kept, start))]


def test_results_are_read_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    file, there = opened(path)
    assert there == []
    file.append([ONE, TWO])
    file.close()
    file, there = opened(path)
    assert there == [("1", "done"), ('"zwei"', "error")]
    file.close()
    assert path.read_bytes() == ONE + TWO


def test_a_last_line_that_we_wrote_in_part_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(ONE + TWO[:20])
    file, there = opened(path, [TWO])
    assert there == [("1", "done")]
    file.append([TWO])
    file.close()
    assert path.read_bytes() == ONE + TWO


def test_a_last_line_without_an_end_is_whole_if_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + ONE[:-1] + b"\r\n\r\n" + TWO[:-1])  # an editor was here
    before = path.read_bytes()
    file, there = opened(path, [TWO])
    assert there == [("1", "done"), ('"zwei"', "error")]
    file.append([ONE])
    file.close()
    assert path.read_bytes() == before + b"\n" + ONE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"my notes\n", "line 1 of .* is no result of a batch; name another file"),
        (ONE + b'{"id": 7, "prompt": "a task"}\n', "line 2 of .* is no result"),
        (ONE + b'{"id": 7, "sta', "line 2 of .* was not written to its end; remove that line"),
    ],
)
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=said):
        opened(path, [TWO])
    assert path.read_bytes() == text


def test_two_batches_do_not_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDING_SECONDS", 0.01)
    path = tmp_path / "out.jsonl"
    other = tmp_path / "the same.jsonl"
    file = ResultsFile(path)
    os.link(path, other)
    with pytest.raises(UsageError, match="another `ferrule batch` writes"):
        ResultsFile(other)
    file.close()
    ResultsFile(other).close()


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the folder of .* does not exist"):
        ResultsFile(tmp_path / "none" / "out.jsonl")
    with pytest.raises(UsageError, match="Is a directory"):
        ResultsFile(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is not a file"):
        ResultsFile(tmp_path / "pipe")


def test_a_file_that_was_moved_meanwhile_gets_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    file, _ = opened(path)
    file.append([ONE])
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(FerruleError, match="moved, replaced or deleted while the batch ran"):
        file.append([TWO])
    path.write_bytes(b"")
    with pytest.raises(FerruleError, match="moved, replaced or deleted"):
        file.append([TWO])
    file.close()
    assert (tmp_path / "elsewhere").read_bytes() == ONE


def test_a_full_disk_is_said() -> None:
    if not stat.S_ISCHR(os.stat("/dev/full").st_mode):
        pytest.skip("there is no /dev/full")
    file = ResultsFile.__new__(ResultsFile)  # the constructor takes no devices
    file.path, file.descriptor, file._torn = Path("/dev/full"), os.open("/dev/full", os.O_WRONLY), False
    with pytest.raises(FerruleError, match="/dev/full cannot be written: No space left on device; free some space"):
        file.append([ONE])
    file.close()
