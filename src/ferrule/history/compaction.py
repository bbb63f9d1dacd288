"""What a history becomes when it no longer fits the model's window: cut for the request that asks for a summary, and
put together anew around that summary. Pure.

Calls and outputs stay pairs, and reasoning stays with the call that follows it: items are only ever taken out in
units.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from ferrule.history.pairs import answered_id, called_id
from ferrule.history.tokens import estimate, estimate_all
from ferrule.protocol.content import ContentPart, InputImage, InputText, text_of
from ferrule.protocol.items import (
    ApplyPatchCallOutput,
    ComputerCallOutput,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    LocalShellCallOutput,
    McpToolCallOutput,
    Message,
    Reasoning,
    ResponseItem,
    ShellCallOutput,
    ToolSearchCall,
    ToolSearchOutput,
    make_item,
)
from ferrule.protocol.json_text import encodable
from ferrule.protocol.payload import BLANK_SCREEN
from ferrule.protocol.truncation import OutputBudget, truncate_text

SHORTEST_OUTPUT = 200
"""Tokens of a tool output that is shortened: its first and last lines, which say what it was."""
WRAPPING = 50
"""Tokens of an output's JSON and of the marker in a shortened text."""
KEPT_USER_TOKENS = 20_000
"""Tokens of the user's newest messages that are kept word for word, as in Codex."""
DROPPED_IMAGE = "[an image was here; it was left out to save room: view it again if it is needed]"

SUMMARY_PROMPT = """\
This conversation is about to be replaced by a summary, because it nearly fills your context window. Write that \
summary now. You will continue the task from it; the user's newest messages and your plan are kept as they are.

Include:
- the task, with every constraint and preference that the user stated
- what is done: files created or changed (with paths), decisions and their reasons
- what you learned: commands that build, run or test the project, important names and places, exact error messages
- what is in progress, and the next steps in order

Be specific and brief. Do not call tools. Answer with the summary alone."""

SUMMARY_PREFIX = (
    "The earlier part of this conversation was replaced by the following summary, which you wrote. Continue from it, "
    "and do not repeat work that it reports as done."
)
OPENINGS = (
    ("# AGENTS.md instructions for ", ""),
    ("<skills_instructions>", "</skills_instructions>"),
    ("<environment_context>", "</environment_context>"),
)
"""How the messages begin and end that come before the user's first, and anew after a compaction."""
TAKEN_BACK = ("<changes_taken_back>", "</changes_taken_back>")
CONTEXT = (
    *OPENINGS,
    ("<skill>", "</skill>"),
    ("<subagent_notification>", "</subagent_notification>"),
    TAKEN_BACK,
    (SUMMARY_PREFIX, ""),
)
"""How messages begin and end that have the role of the user and are none of the user's words. Words of the user that
only begin like one are the user's."""

PLAN_TOOLS = frozenset({"update_plan", "task_tracker"})
"""Tools whose calls hold the plan, whole."""

T = TypeVar("T")


def units(items: Iterable[ResponseItem]) -> Iterator[list[ResponseItem]]:
    """Split a history into runs that must stay whole: the calls of one response, their outputs, and the reasoning and
    text before them."""
    unit: list[ResponseItem] = []
    waiting: set[str] = set()
    for item in items:
        if unit and not waiting and not _belongs(unit[-1], item):
            yield unit
            unit = []
        unit.append(item)
        waiting.discard(answered_id(item.view) or "")
        if (call_id := called_id(item.view)) is not None:
            waiting.add(call_id)
    if unit:
        yield unit


def _belongs(before: ResponseItem, item: ResponseItem) -> bool:
    """Return whether an item cannot be had without the one before it."""
    if isinstance(before.view, Reasoning):
        return not (isinstance(item.view, Message) and item.view.role != "assistant")
    same = before.origin is not None and item.origin is not None and before.origin.response == item.origin.response
    return same and before.origin is not None and before.origin.response != 0


def cut_to(items: Sequence[ResponseItem], room: int) -> list[ResponseItem]:
    """Return the items in at most `room` tokens: the longest outputs are shortened, of a response that is too long
    only some calls are kept, then the oldest units are left out, and an earlier summary last, since nothing else tells
    what it stands for.
    """
    excess = estimate_all(items) - room
    if excess <= 0:
        return list(items)
    parts = list(units(_with_shorter_outputs(items, excess)))
    sizes = [estimate_all(part) for part in parts]
    for at, part in enumerate(parts):
        if sizes[at] > room:
            parts[at] = _newest_calls(part, room // 2)
            sizes[at] = estimate_all(parts[at])
    total = sum(sizes)
    left_out: set[int] = set()
    for at in sorted(range(len(parts)), key=lambda at: (any(map(is_summary, parts[at])), at)):
        if total <= room:
            break
        total -= sizes[at]
        left_out.add(at)
    return [item for at, part in enumerate(parts) if at not in left_out for item in part]


def _newest_calls(unit: Sequence[ResponseItem], room: int) -> list[ResponseItem]:
    """Return as many of a response's calls as fit, the newest, with their outputs and without its reasoning."""
    outputs = {answered_id(item.view): item for item in unit}
    calls: list[ResponseItem] = []
    answers: list[ResponseItem] = []
    for item in reversed(unit):
        output = outputs.get(called_id(item.view) or "")
        if output is None or (size := estimate(item) + estimate(output)) > room:
            continue
        calls.append(_alone(item))
        answers.append(output)
        room -= size
    return [*reversed(calls), *reversed(answers)]


def _with_shorter_outputs(items: Sequence[ResponseItem], excess: int) -> list[ResponseItem]:
    sizes = [estimate(item) if answered_id(item.view) is not None else 0 for item in items]
    longest = _longest_allowed([size for size in sizes if size > SHORTEST_OUTPUT], excess)
    return [
        shortened(item, longest - WRAPPING) if size > longest else item for item, size in zip(items, sizes, strict=True)
    ]


def _longest_allowed(sizes: Iterable[int], excess: int) -> int:
    """Return the size to which longer ones are cut, so that `excess` is saved, if that is possible."""
    longest = SHORTEST_OUTPUT
    ordered = sorted(sizes, reverse=True)
    for count, size in enumerate(ordered, 1):
        following = ordered[count] if count < len(ordered) else SHORTEST_OUTPUT
        saved = count * (size - following)
        if saved >= excess:
            return max(size - -(-excess // count), SHORTEST_OUTPUT)
        excess -= saved
    return longest


def shortened(item: ResponseItem, tokens: int) -> ResponseItem:
    """Return an output or a message cut in its middle to about `tokens`, without images; other items as they are."""
    view = item.view
    budget = OutputBudget(tokens)
    if isinstance(view, Message):
        return make_item(msgspec.structs.replace(view, content=_cut_content(view.content, budget)))
    if isinstance(view, FunctionCallOutput | CustomToolCallOutput | McpToolCallOutput):
        return make_item(msgspec.structs.replace(view, output=_cut_content(view.output, budget)))
    if isinstance(view, ComputerCallOutput):
        return make_item(msgspec.structs.replace(view, output=BLANK_SCREEN))
    if isinstance(view, LocalShellCallOutput):
        return make_item(msgspec.structs.replace(view, output=truncate_text(view.output, budget)))
    if isinstance(view, ApplyPatchCallOutput) and view.output is not None:
        return make_item(msgspec.structs.replace(view, output=truncate_text(view.output, budget)))
    if isinstance(view, ShellCallOutput):
        each = OutputBudget(max(tokens // max(2 * len(view.output), 1), 1))
        commands = tuple(
            msgspec.structs.replace(one, stdout=truncate_text(one.stdout, each), stderr=truncate_text(one.stderr, each))
            for one in view.output
        )
        return make_item(msgspec.structs.replace(view, output=commands))
    return item


def _cut_content(content: str | tuple[ContentPart, ...], budget: OutputBudget) -> str | tuple[ContentPart, ...]:
    if isinstance(content, str):
        return truncate_text(content, budget)
    notes = [DROPPED_IMAGE for part in content if isinstance(part, InputImage)]
    return (InputText(truncate_text("\n".join(filter(None, [text_of(content), *notes])), budget)),)


def is_words_of_user(item: ResponseItem) -> bool:
    """Return whether an item is what the user said, not what the runtime says in the user's role."""
    view = item.view
    return isinstance(view, Message) and view.role == "user" and not _is_framed(view, CONTEXT)


def _is_framed(view: Message, frames: Iterable[tuple[str, str]]) -> bool:
    text = text_of(view.content).strip()
    return any(text.startswith(begin) and text.endswith(end) for begin, end in frames)


def is_opening(item: ResponseItem) -> bool:
    """Return whether an item is one of the messages that come before the user's first."""
    return isinstance(item.view, Message) and item.view.role == "user" and _is_framed(item.view, OPENINGS)


def is_summary(item: ResponseItem) -> bool:
    """Return whether an item is the summary of an earlier compaction."""
    return (
        isinstance(item.view, Message) and item.view.role == "user" and _is_framed(item.view, ((SUMMARY_PREFIX, ""),))
    )


def is_said(item: ResponseItem) -> bool:
    """Return whether an item is of the model, or of one of its tools."""
    return not isinstance(item.view, Message) or item.view.role == "assistant"


def split_unanswered(items: Sequence[ResponseItem]) -> tuple[Sequence[ResponseItem], Sequence[ResponseItem]]:
    """Split off the messages at the end that the model has not seen yet, from the user's first words on; what an
    opening says anew is left out of them."""
    end = len(items)
    while end and not is_said(items[end - 1]) and not is_summary(items[end - 1]):
        end -= 1
    first = next((at for at in range(end, len(items)) if is_words_of_user(items[at])), len(items))
    return items[:first], [item for item in items[first:] if not is_opening(item)]


def newest_words(items: Sequence[ResponseItem], room: int = KEPT_USER_TOKENS) -> list[ResponseItem]:
    """Return the user's newest messages in `room` tokens; the oldest of them is cut in its middle."""
    kept: list[ResponseItem] = []
    for item in reversed(items):
        if not is_words_of_user(item):
            continue
        size = estimate(item)
        kept.append(item if size <= room else shortened(item, room))
        room -= size
        if room <= 0:
            break
    return kept[::-1]


def carried_searches(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """Return the tool searches with their results: the model may call only tools that it has been shown."""
    return [_alone(item) for item in items if isinstance(item.view, ToolSearchCall | ToolSearchOutput)]


def carried_plan(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """Return the last call that set the plan, with its answer; nothing if there is none."""
    for at in range(len(items) - 1, -1, -1):
        if not _sets_plan(items[at].view):
            continue
        call_id = called_id(items[at].view)
        answer = next((item for item in items[at:] if answered_id(item.view) == call_id), None)
        if answer is not None:
            return [_alone(items[at]), answer]
    return []


class _Plan(msgspec.Struct):
    plan: list[object] = []
    task_list: list[object] = []


def _sets_plan(view: ItemView) -> bool:
    if not isinstance(view, FunctionCall) or view.name not in PLAN_TOOLS or view.namespace is not None:
        return False
    try:
        found = msgspec.json.decode(view.arguments, type=_Plan)
    except msgspec.DecodeError:
        return False
    return bool(found.plan or found.task_list)


def _alone(item: ResponseItem) -> ResponseItem:
    """Return an item of the model without its id, by which a server would look for the reasoning before it."""
    view = item.view
    if item.origin is None or not isinstance(view, FunctionCall | CustomToolCall | ToolSearchCall):
        return item
    raw = make_item(msgspec.structs.replace(view, id=None)).raw
    return ResponseItem(raw, msgspec.structs.replace(view, id=None), item.origin)


def compacted(
    history: Sequence[ResponseItem],
    *,
    opening: Iterable[ResponseItem],
    summary: Iterable[ResponseItem],
    room: int = KEPT_USER_TOKENS,
) -> tuple[ResponseItem, ...]:
    """Return the history that replaces `history`: the opening messages, the tools that were found, the user's newest
    words, the summary, the plan, and what the model has not answered yet."""
    seen, unanswered = split_unanswered(history)
    return (
        *opening,
        *carried_searches(seen),
        *newest_words(seen, room),
        *summary,
        *carried_plan(seen),
        *unanswered,
    )


def around_summary(
    said: Sequence[ResponseItem],
    history: Sequence[ResponseItem],
    *,
    opening: Iterable[ResponseItem],
    notes: Iterable[ResponseItem],
    room: int = KEPT_USER_TOKENS,
) -> tuple[ResponseItem, ...]:
    """Return the history that replaces `history` where a server has summarised it as `said`: with the opening messages,
    the tools that were found, the plan and the user's newest words, if only the server's own summary knows of them:
    another server cannot read it."""
    kept = [item for item in said if not is_opening(item)]
    plan = [] if carried_plan(kept) else carried_plan(history)
    words = [] if any(map(is_words_of_user, kept)) else newest_words(history, room)
    return (*opening, *carried_searches(history), *plan, *words, *kept, *notes)


def summary_message(text: str, more: str = "") -> ResponseItem:
    """Return the message that stands for what was summarised; `more` follows the summary."""
    return user_message("\n\n".join(filter(None, [SUMMARY_PREFIX, text.strip(), more])))


def user_message(text: str) -> ResponseItem:
    """Return a message in the user's role. The names of files in it may be in any encoding."""
    return make_item(Message(role="user", content=(InputText(encodable(text)),)))
