"""What needs the MCP SDK says so where the extra `mcp` is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from ferrule.protocol.errors import UsageError


@contextmanager
def sdk_needed() -> Iterator[None]:
    """Around an import that leads to the SDK. Raises `UsageError` where the SDK is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError("MCP servers need the extra `mcp`: pip install 'ferrule[mcp]'") from error
