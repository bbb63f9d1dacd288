"""A model behind the Chat Completions API that is sent no tools and writes its calls as text."""

from ferrule.model.adapt import WireTools
from ferrule.model.calls import CallReader
from ferrule.model.chat.client import ChatModel
from ferrule.model.recipient import Recipient
from ferrule.model.text.request import TextBody
from ferrule.model.text.stream import TextStream
from ferrule.model.text.tools import KnownTools
from ferrule.model.wire import Body, Merger


class TextModel(ChatModel):
    """The Chat wire with the tools in the prompt (`tool_calls = "text"`)."""

    native_calls = False

    def new_body(self, recipient: Recipient) -> Body:
        """Return the request builder for one server and model family."""
        return TextBody(recipient)

    def new_merger(self, calls: CallReader, tools: WireTools) -> Merger:
        """Return the merger for one response."""
        known = KnownTools(tools.tools, lambda name: tools.names.resolve(name) is not None)
        return TextStream(self.chat_merger(calls), calls, known)
