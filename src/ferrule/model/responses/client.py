"""A model behind the Responses API."""

from typing import Any

import msgspec

from ferrule.model.adapt import WireTools
from ferrule.model.calls import CallReader
from ferrule.model.recipient import Recipient
from ferrule.model.responses.events import Usage
from ferrule.model.responses.request import ResponsesBody
from ferrule.model.responses.stream import ResponsesStream, token_usage
from ferrule.model.stream import ModelError, ModelRequest
from ferrule.model.wire import WireModel
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import Message, Origin, ResponseItem, read_item


class CompactedResponse(msgspec.Struct):
    """The answer of `/responses/compact`, as far as it is used."""

    output: list[dict[str, Any]] = []
    usage: Usage | None = None


class ResponsesModel(WireModel):
    """A client of `POST /responses` with a stream."""

    wire = "responses"
    path = "/responses"

    def new_body(self, recipient: Recipient) -> ResponsesBody:
        """Return this wire's request builder for one server and model family."""
        return ResponsesBody(recipient)

    async def compact(self, request: ModelRequest) -> tuple[tuple[ResponseItem, ...], TokenUsage | None]:
        """Let the server replace the request's items by fewer (`POST /responses/compact`). Raises `ModelError`."""
        self._recall(request)
        recipient = self._asked(request).recipient
        answer = await self.server.post_json(f"{self.path}/compact", ResponsesBody(recipient).compaction(request))
        try:
            response = msgspec.convert(answer, CompactedResponse)
        except msgspec.ValidationError as error:
            raise ModelError(f"{self.server.endpoint.name} answered {self.path}/compact with no response") from error
        origin = Origin(recipient.provider, recipient.family)
        items = (read_item(msgspec.json.encode(item)) for item in response.output)
        made = tuple(item if _is_users(item) else ResponseItem(item.raw, item.view, origin) for item in items)
        return made, None if response.usage is None else token_usage(response.usage)

    def new_merger(self, calls: CallReader, tools: WireTools) -> ResponsesStream:
        """Return the merger for one response."""
        return ResponsesStream(calls, self.server.endpoint.name)


def _is_users(item: ResponseItem) -> bool:
    return isinstance(item.view, Message) and item.view.role != "assistant"
