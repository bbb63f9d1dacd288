"""The one list of what is read as a project's configuration."""

from pathlib import PurePosixPath

from ferrule.config.project import PROJECT_FILES, PROTECTED_AT_TOP


def test_s04_all_that_is_read_is_protected() -> None:
    tops = {PurePosixPath(entry.folder, entry.suffix or "any").parts[0] for entry in PROJECT_FILES}
    assert tops <= set(PROTECTED_AT_TOP)
