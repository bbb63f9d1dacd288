from pathlib import Path

from ferrule.patch import apply_patch


def test_the_whole_way(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    text = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+2\n*** Add File: d/b.txt\n+new\n*** End Patch\n"
    assert apply_patch(text, str(tmp_path)) == "Success. Updated the following files:\nA d/b.txt\nM a.txt\n"
    assert (tmp_path / "a.txt").read_bytes() == b"one\n2\n"
    assert (tmp_path / "d/b.txt").read_bytes() == b"new\n"
