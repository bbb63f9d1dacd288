"""A conversation as chat messages, for whoever reads it later: trainers, and people."""

from collections.abc import Sequence

import msgspec

from ferrule.model.chat.request import ChatBody
from ferrule.model.profiles import Profiles
from ferrule.model.recipient import Recipient
from ferrule.protocol.items import ResponseItem


def chat_messages(items: Sequence[ResponseItem], profiles: Profiles) -> bytes:
    """Return the JSON array of the messages that any server of the Chat Completions API takes. Reasoning that can be
    read stands in `reasoning_content`."""
    accepts = msgspec.structs.replace(profiles.provider("generic", None, "chat"), reasoning_field="reasoning_content")
    return ChatBody(Recipient(accepts, "", "", "chat")).messages(items)
