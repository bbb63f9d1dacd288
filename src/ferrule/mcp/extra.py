"""Say what to install if the extra `mcp` is missing."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ferrule.protocol.errors import UsageError

_SDK_LOGGERS = ("mcp", "client")
"""The SDK's logs go where the program's logs go, but never as a traceback to the stderr of a program without logs: our
own messages report a server's faults."""


@contextmanager
def sdk_needed() -> Iterator[None]:
    """Wrap an import of the SDK. Raises `UsageError` if the SDK is not installed."""
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
