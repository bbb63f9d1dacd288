"""A model behind the Chat Completions API."""

from ferrule.model.adapt import WireTools
from ferrule.model.calls import CallReader
from ferrule.model.chat.request import ChatBody
from ferrule.model.chat.stream import ChatStream
from ferrule.model.recipient import Recipient
from ferrule.model.wire import Body, Merger, WireModel


class ChatModel(WireModel):
    """A client of `POST /chat/completions` with a stream."""

    wire = "chat"
    path = "/chat/completions"

    def new_body(self, recipient: Recipient) -> Body:
        """Return this wire's request builder for one server and model family."""
        return ChatBody(recipient)

    def new_merger(self, calls: CallReader, tools: WireTools) -> Merger:
        """Return the merger for one response."""
        return self.chat_merger(calls)

    def chat_merger(self, calls: CallReader) -> ChatStream:
        """Return the merger for one response, as the server sends it."""
        return ChatStream(calls, self.server.endpoint.name)
