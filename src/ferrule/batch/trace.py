"""What was said in a task: its chat messages, from the prompt to the last answer."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ferrule.history.pairs import settled
from ferrule.model.chat.messages import chat_messages
from ferrule.model.profiles import Profiles
from ferrule.protocol.content import text_of
from ferrule.protocol.items import Message, Origin, ResponseItem, read_item
from ferrule.session.salvage import Salvage

LONGEST_NAME = 60
"""Characters of an id in the name of its rollout: enough to find it by, and short enough for any file system."""


def rollout_name(key: str) -> str:
    """Return the name of a task's rollout: what a file's name may have of its id, and a digest, which is no other
    id's."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", key.strip('"'))[:LONGEST_NAME].strip("-.")
    return f"{readable or 'task'}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jsonl"


def conversation(path: Path, prompt: str) -> tuple[list[ResponseItem], bool]:
    """Return all items of a rollout from the prompt on, those too that a compaction has replaced; and whether it was
    written to the end of a response. A disk that was full may have taken a part."""
    responses: list[list[ResponseItem]] = [[]]
    last = ""
    with path.open("rb") as file:
        for line in Salvage(file):
            last = line.type
            if line.type == "response_item":
                origin = msgspec.json.decode(line.origin, type=Origin) if bytes(line.origin) else None
                responses[-1].append(read_item(bytes(line.payload), origin))
            elif line.type == "event_msg" and responses[-1]:
                responses.append([])
    items = settled(responses)
    return items[_place_of(items, prompt) :], last == "event_msg"


def messages_of(items: Sequence[ResponseItem], profiles: Profiles) -> msgspec.Raw:
    """Return the items as a JSON array of chat messages."""
    return msgspec.Raw(chat_messages(items, profiles))


def last_words(items: Sequence[ResponseItem]) -> str:
    """Return what the model said last; empty if it said nothing."""
    views = (item.view for item in reversed(items))
    said = (text_of(view.content) for view in views if isinstance(view, Message) and view.role == "assistant")
    return next(filter(None, said), "")


def _place_of(items: Sequence[ResponseItem], prompt: str) -> int:
    for place, item in enumerate(items):
        view = item.view
        if isinstance(view, Message) and view.role == "user" and text_of(view.content) == prompt:
            return place
    return 0
