"""A conversation's history: every call exactly one output, in call order; on disk the same as in memory."""

from collections.abc import Sequence

from ferrule.history.pairs import answered_id, called_id, settled
from ferrule.protocol.items import Message, ResponseItem
from ferrule.session.rollout import StoredSession, find_rollout, read_rollout


def wrong_order(items: Sequence[ResponseItem]) -> list[str]:
    """What a model server could refuse in these items."""
    problems: list[str] = []
    waiting: list[str] = []
    called: set[str] = set()
    for item in items:
        call, answer = called_id(item.view), answered_id(item.view)
        if call is not None:
            if call in called:
                problems.append(f"two calls have the id {call}")
            called.add(call)
            waiting.append(call)
        elif answer is not None:
            if waiting[:1] != [answer]:
                problems.append(f"the output of {answer} stands where {waiting[:1]} had to be answered")
            waiting = [one for one in waiting if one != answer]
        elif waiting and isinstance(item.view, Message) and item.view.role == "user":
            problems.append(f"the user speaks while {waiting} have no output")
    return problems + [f"{call} has no output" for call in waiting]


def stored_history(home: str, session_id: str, items: Sequence[ResponseItem]) -> tuple[StoredSession, list[str]]:
    """The rollout, and how it differs from the history in memory."""
    stored = read_rollout(find_rollout(home, session_id))
    problems = [f"{stored.skipped_lines} lines of {stored.path} cannot be read"] if stored.skipped_lines else []
    replayed = settled(stored.responses)
    if [item.raw for item in replayed] != [item.raw for item in items]:
        shown = [_difference(a, b) for a, b in zip(replayed, items, strict=False) if a.raw != b.raw]
        order = f"{_order(replayed)} instead of {_order(items)}"
        problems.append(f"the rollout has {len(replayed)} items, history {len(items)}: {shown[:1]}; {order}")
    return stored, problems


def _order(items: Sequence[ResponseItem]) -> str:
    """The order of calls (+) and outputs (-)."""
    ids = ((called_id(item.view), answered_id(item.view)) for item in items)
    return " ".join(f"+{call}" if call else f"-{answer}" for call, answer in ids if call or answer)


def _difference(stored: ResponseItem, kept: ResponseItem) -> str:
    return f"{stored.raw[:300]!r} instead of {kept.raw[:300]!r}"
