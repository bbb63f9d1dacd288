"""The web in a session: the way there, and the citations of its answers."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ferrule.lookup import Places
from ferrule.protocol.items import Message, ResponseItem, read_item
from ferrule.protocol.json_text import JsonObject
from ferrule.protocol.permissions import ReadOnly, WorkspaceWrite
from ferrule.protocol.settings import Settings
from ferrule.web.access import WebAccess
from ferrule.web.marks import Citation, Cited, MarkReader, cited

if TYPE_CHECKING:
    from ferrule.containers.documents import BestPlace
    from ferrule.web.browser import Browser

log = logging.getLogger("ferrule.web")


def web_access(settings: Settings, env: Mapping[str, str], places: Places) -> WebAccess | None:
    """Return a session's way to the web; None where the user has configured none. The hosts and roots that commands
    have hold for its pages, too."""
    table, policy = settings.web_search, settings.sandbox_policy
    if table is None:
        return None

    parsing: list[BestPlace] = []

    def open_it() -> "Browser":
        from ferrule.containers.documents import BestPlace, container_alone
        from ferrule.egress.guard import Guard
        from ferrule.mcp.search_tool import search_tools_of
        from ferrule.web.opening import open_browser

        connect = search_tools_of(settings.mcp_servers, cwd=settings.cwd, home=settings.home, env=env, places=places)
        parsing.append(BestPlace(container_alone, Path(settings.home), log.info))
        return open_browser(
            table,
            Guard(None, hosts=policy.hosts if isinstance(policy, ReadOnly | WorkspaceWrite) else None),
            connect,
            ca_file=policy.ca_file if isinstance(policy, ReadOnly | WorkspaceWrite) else None,
            cwd=settings.cwd,
            env=env,
            places=places,
            parsing=parsing[-1],
        )

    async def close() -> None:
        while parsing:
            await parsing.pop().aclose()

    return WebAccess(open_it, lambda: table.missing(env, settings.mcp_servers), close)


class Citing:
    """Takes the citation marks out of what people see of a turn. History keeps them: the model has written them."""

    def __init__(self, access: WebAccess | None) -> None:
        self._access = access
        self._readers: dict[str, MarkReader] = {}

    def feed(self, item_id: str, piece: str) -> str:
        """Return what to show of a piece of a message."""
        if self._access is None:
            return piece
        return self._readers.setdefault(item_id, MarkReader()).feed(piece)

    def read(self, text: str) -> Cited:
        """Return a text without marks, and what it cites."""
        return Cited(text) if self._access is None else cited(text, self._access.sources)

    def shown(self, item: ResponseItem) -> ResponseItem:
        """Return a message as people see it, with its citations as annotations; anything else as it is."""
        if self._access is None or not isinstance(item.view, Message):
            return item
        fields: JsonObject = msgspec.json.decode(item.raw)
        for part in fields.get("content") or ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                text, citations = self.read(part["text"])
                part |= {"text": text, "annotations": [*(part.get("annotations") or ()), *_annotations(citations)]}
        return read_item(msgspec.json.encode(fields), item.origin)


def _annotations(citations: tuple[Citation, ...]) -> list[JsonObject]:
    return [one.annotation for one in citations]
