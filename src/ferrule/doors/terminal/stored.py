"""The cells of a stored conversation."""

from ferrule.doors.terminal.cell import Cell
from ferrule.doors.terminal.conversation import Conversation
from ferrule.history.compaction import is_words_of_user
from ferrule.history.pairs import answered_id
from ferrule.protocol.content import text_of
from ferrule.protocol.items import Message, ResponseItem
from ferrule.session.rollout import StoredSession


def stored_cells(stored: StoredSession) -> tuple[list[Cell], Conversation]:
    """Return the cells of a session that is gone on with, and the conversation, which has its last answer and plan."""
    cells: list[Cell] = []
    conversation = Conversation(cells.append, lambda cell: None)
    for response in stored.responses:
        for item in response:
            _take(conversation, item)
    conversation.abort()
    return cells, conversation


def _take(conversation: Conversation, item: ResponseItem) -> None:
    view = item.view
    answered = answered_id(view)
    if isinstance(view, Message) and view.role == "user":
        if is_words_of_user(item):
            conversation.say(text_of(view.content))
    elif answered is not None:
        conversation.answered(answered, _text(view))
    else:
        conversation.stored(item)


def _text(view: object) -> str:
    body = getattr(view, "output", "")
    if isinstance(body, str):
        return body
    return text_of(body) if isinstance(body, tuple) else ""
