"""What a gateway of this user keeps, for commands beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ferrule.protocol.errors import UsageError

MISSING = "`ferrule {command}` needs the extra `gateway`: pip install 'ferrule[gateway]'"
_EXTRA = frozenset({"starlette", "uvicorn", "httptools", "websockets", "sqlalchemy", "python_multipart"})


def state_file(home: str) -> Path:
    """Return where a gateway keeps its state."""
    return Path(home, "gateway", "state.sqlite")


@contextmanager
def needs_extra(command: str) -> Iterator[None]:
    """Raise `UsageError` where a package of the extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise UsageError(MISSING.format(command=command)) from error
