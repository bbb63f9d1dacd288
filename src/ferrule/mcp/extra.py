"""What needs the MCP SDK says so where the extra `mcp` is not installed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ferrule.protocol.errors import UsageError

_SDK_LOGGERS = ("mcp", "client")
"""What the SDK logs goes where the program's logs go. It is no traceback on the stderr of one that has no logs: what a
server did wrong is told by messages of ours."""


@contextmanager
def sdk_needed() -> Iterator[None]:
    """Around an import that leads to the SDK. Raises `UsageError` where the SDK is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError("MCP servers need the extra `mcp`: pip install 'ferrule[mcp]'") from error
    for name in _SDK_LOGGERS:
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
