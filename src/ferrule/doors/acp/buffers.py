"""The files of the client's editor, by its own methods."""

import asyncio

from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import FileSystemCapabilities
from pydantic import ValidationError

ANSWER_S = 10.0
"""Seconds for an editor to answer about a file: one that does not is one that cannot tell."""
SILENT_S = 60.0
"""Seconds in which an editor that did not answer is not asked again: a patch of many files would wait for each."""
NO_ANSWER = f"it did not answer within {ANSWER_S:g} seconds"


class EditorFiles:
    """`Buffers` over `fs/read_text_file` and `fs/write_text_file`, as far as the client has them."""

    def __init__(self, client: Client, session_id: str, offered: FileSystemCapabilities) -> None:
        self._client = client
        self._session_id = session_id
        self._reads, self._writes = bool(offered.read_text_file), bool(offered.write_text_file)
        self._reads_again = self._writes_again = 0.0
        """When it is asked again."""

    async def read(self, path: str) -> str | None:
        """See `Buffers`."""
        if not self._reads or _now() < self._reads_again:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                return (await self._client.read_text_file(session_id=self._session_id, path=path)).content
        except TimeoutError:
            self._reads_again = _now() + SILENT_S
        except (RequestError, ValidationError, ConnectionError):
            pass
        return None

    async def write(self, path: str, text: str) -> str:
        """See `Buffers`."""
        if not self._writes:
            return ""
        if _now() < self._writes_again:
            return NO_ANSWER
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._client.write_text_file(session_id=self._session_id, path=path, content=text)
        except TimeoutError:
            self._writes_again = _now() + SILENT_S
            return NO_ANSWER
        except (RequestError, ValidationError, ConnectionError) as error:
            return str(error) or type(error).__name__
        return ""


def _now() -> float:
    return asyncio.get_running_loop().time()
