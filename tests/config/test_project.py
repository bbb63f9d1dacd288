"""The one list of what is read as a project's configuration."""

from ferrule.config.project import PROJECT_FILES, PROTECTED_AT_TOP


def test_s04_all_that_is_read_is_protected() -> None:
    assert {entry.path.split("/")[0] for entry in PROJECT_FILES} <= set(PROTECTED_AT_TOP)
