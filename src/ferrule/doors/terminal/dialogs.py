"""What somebody is asked before a call runs: a dialog in the place of the composer."""

from collections.abc import Sequence
from itertools import accumulate

import msgspec
from textual.strip import Strip

from ferrule.doors.terminal.panel import Panel, Rows
from ferrule.doors.terminal.patches import DiffLine, change_title, diff_lines
from ferrule.doors.terminal.strips import BOLD, CHOSEN, DIM, GREEN, PLAIN, QUESTION, RED, YELLOW, row
from ferrule.protocol.events import ExecApproval, FileChange
from ferrule.protocol.permissions import ReviewDecision
from ferrule.rendering.lookalikes import unmistakable
from ferrule.rendering.width import chopped, cut, folded
from ferrule.tools.questions import Decision

LEAST_TEXT_ROWS = 2
"""Rows of a command that are always shown: its beginning, and its end or how much is hidden."""
MOST_REASON_ROWS = 4
MOST_LABEL_ROWS = 4
"""Rows of a choice that names what will be remembered."""
LONGEST_CELL = 4
"""More characters than one cell of the screen holds: a letter with marks that are not shown as escapes."""
PLACE_ROWS = 3
"""Rows beside the choices from which on there is room to name the directory."""

_TITLES = {
    "command": "Run this command?",
    "patch": "Write this patch?",
    "mcp": "Let an MCP server do this?",
    "tool": "Run this tool?",
    "network": "Let a command reach this host?",
}
_THIS = {
    "command": "this command here",
    "patch": "these files",
    "mcp": "this very call",
    "tool": "this very call",
    "network": "this host",
}


class Choice(msgspec.Struct, frozen=True):
    """One answer: the key that gives it, what it means, and what it is."""

    key: str
    label: str
    decision: ReviewDecision
    asks_words: bool = False


def choices_of(question: ExecApproval) -> tuple[Choice, ...]:
    """Return the answers to choose from; each says what exactly will be remembered."""
    choices = [Choice("y", "yes, once", ReviewDecision.APPROVED)]
    if ReviewDecision.APPROVED_FOR_SESSION in question.decisions:
        what = _THIS.get(question.kind, "this very call")
        choices.append(Choice("s", f"for this session: {what}", ReviewDecision.APPROVED_FOR_SESSION))
    if ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT in question.decisions:
        choices.append(Choice("a", f"always: {remembered(question)}", ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT))
    choices.append(Choice("n", "no", ReviewDecision.DENIED))
    choices.append(Choice("t", "no, and tell the model", ReviewDecision.DENIED, asks_words=True))
    return tuple(choices)


def remembered(question: ExecApproval) -> str:
    """Return what `always` would allow for good."""
    import shlex

    if question.proposed_network_host is not None:
        return f"the host {unmistakable(question.proposed_network_host, multiline=False)}"
    prefix = shlex.join(question.proposed_execpolicy_amendment or ())
    what = "exactly" if question.proposes_exact else "commands that begin with"
    return f"{what} `{unmistakable(prefix, multiline=False)}`"


def approval_rows(question: ExecApproval, chosen: int, width: int, height: int, waiting: int = 1) -> list[Strip]:
    """Return the dialog in at most `height` rows, the choices last and each in sight."""
    choices = choices_of(question)
    asker = f" (sub-agent {unmistakable(question.agent_id, multiline=False)})" if question.agent_id else ""
    more = f" · 1 of {waiting}" if waiting > 1 else ""
    title = row((cut(f"{_TITLES.get(question.kind, 'Allow this?')}{asker}{more}", width), QUESTION))
    spare = height - 1 - len(choices) - LEAST_TEXT_ROWS - bool(question.reason) - bool(question.justification)
    labels = [_choice_rows(choice, index == chosen, width, spare) for index, choice in enumerate(choices)]
    room = max(height - 1 - sum(map(len, labels)), 0)
    reason = _reason(question, width, room)
    place = [f"in {unmistakable(question.cwd, multiline=False)}"] if question.cwd else []
    if room - len(reason) - len(place) < PLACE_ROWS:
        place = []
    room -= len(reason) + len(place)
    if question.shows_changes:
        body = fitted_diff(question.changes, width, room)
    else:
        text = fitted(question.text, width - 2, room)
        body = [_text_row(line, question.kind, first=index == 0) for index, line in enumerate(text)]
    return [
        title,
        *body,
        *(row((cut(line, width), DIM)) for line in place),
        *(row((line, YELLOW)) for line in reason),
        *(strip for strips in labels for strip in strips),
    ][: max(height, 1 + len(choices))]


def _reason(question: ExecApproval, width: int, room: int) -> list[str]:
    """Return why it is asked and, always, what the model says for it."""
    said = question.justification
    why = (question.reason or "").removesuffix(f" (the model says: {said})")
    rows = max(min(MOST_REASON_ROWS, (room - LEAST_TEXT_ROWS) // 2), 1)
    model = fitted(f"The model: {said}", width, rows, words=True, multiline=False) if said else []
    left = min(room - LEAST_TEXT_ROWS - len(model), MOST_REASON_ROWS)
    return [*fitted(why, width, left, words=True, multiline=False), *model]


def _choice_rows(choice: Choice, chosen: bool, width: int, spare: int) -> list[Strip]:
    """Return a choice in one row; what is remembered for good, in as many more as there are to spare. Nothing of it
    gets into the column of the keys."""
    style = CHOSEN if chosen else PLAIN
    for_good = choice.decision is ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT
    first, *rest = elided(choice.label, width - 3, 1 + max(min(spare, MOST_LABEL_ROWS - 1), 0) if for_good else 1)
    return [row((f" {choice.key} ", BOLD), (first, style)), *(row(("   ", PLAIN), (line, style)) for line in rest)]


def _text_row(line: str, kind: str, *, first: bool) -> Strip:
    lead = "$ " if kind == "command" and first else "  "
    return row((lead, DIM), (line, PLAIN))


def fitted_diff(changes: Sequence[FileChange], width: int, rows: int) -> list[Strip]:
    """Return what a patch changes, with line numbers, in at most `rows` rows: all of it, or its beginning, how much is
    hidden, and its end."""
    lines = [line for change in changes for line in _asked_lines(change)]
    digits = len(str(max((line.number or 0 for line in lines), default=0)))
    longest = width * max(rows, 1)

    drawn = [_asked_rows(line, digits, width, longest) for line in lines[:rows]]
    if len(lines) <= rows and sum(map(len, drawn)) <= rows:
        return [strip for strips in drawn for strip in strips]
    after = max(rows - 1, 0) // 3
    last = [_asked_rows(line, digits, width, longest) for line in lines[-after:]] if after else []
    head, shown = _first_rows(drawn, max(rows - 1 - after, 0))
    tail, shown_last = _first_rows([strips[::-1] for strips in reversed(last)], after)
    hidden = len(lines) - shown - shown_last
    return [*head, row((cut(f"… {hidden:,} lines are not shown …", width), DIM)), *reversed(tail)][: max(rows, 0)]


def _first_rows(lines: Sequence[list[Strip]], room: int) -> tuple[list[Strip], int]:
    """Return the first rows of some lines, and how many lines are whole in them."""
    ends = list(accumulate(map(len, lines)))
    return [strip for strips in lines for strip in strips][:room], sum(end <= room for end in ends)


def _asked_lines(change: FileChange) -> list[DiffLine]:
    head = f"{change_title(change)} +{change.added} -{change.deleted}"
    return [DiffLine(None, "", head), *diff_lines(change.unified_diff)]


def _asked_rows(line: DiffLine, digits: int, width: int, longest: int) -> list[Strip]:
    """Return a line behind a column for numbers, into which nothing of its text gets."""
    text = unmistakable(line.text[:longest], multiline=False).expandtabs(4)
    if len(line.text) > longest:
        text += f" … {len(line.text) - longest:,} more characters"
    if not line.sign:
        return [row((part, BOLD)) for part in chopped(text, width)]
    lead, style = digits + 3, {"+": GREEN, "-": RED}.get(line.sign, PLAIN)
    first, *rest = chopped(text, width - lead)
    number = "" if line.number is None else str(line.number)
    return [
        row((f"{number:>{digits}} ", DIM), (f"{line.sign} ", style), (first, style)),
        *(row((" " * lead, PLAIN), (part, style)) for part in rest),
    ]


def elided(text: str, width: int, rows: int) -> list[str]:
    """Return a text in at most `rows` rows, one at least: all of it, or its beginning and how much is hidden."""
    width = max(width, 1)
    if len(text) <= width * rows and "  " not in text and len(words := folded(text, width)) <= rows:
        return words
    lines = chopped(text[: width * rows * LONGEST_CELL], width)[: rows + 1]
    if len(lines) <= rows and len(text) <= width * rows * LONGEST_CELL:
        return lines
    note = f"… {len(text):,} more"
    last = chopped(lines[rows - 1], max(width - len(note), 1))[0]
    hidden = len(text) - sum(map(len, lines[: rows - 1])) - len(last)
    return [*lines[: rows - 1], cut(f"{last}… {hidden:,} more", width)]


def middle_cut(text: str, width: int) -> str:
    """Return the text in `width` cells: its beginning and its end, where it is too long."""
    if len(text) <= width:
        return cut(text, width)
    half = max(width - 1, 0) // 2
    return cut(f"{text[: width - 1 - half]}…{text[len(text) - half :] if half else ''}", width)


def fitted(text: str, width: int, rows: int, *, words: bool = False, multiline: bool = True) -> list[str]:
    """Return a text of others, made unmistakable, in at most `rows` rows: all of it, or its beginning, how much is
    hidden, and its end."""
    if rows <= 0 or not text:
        return []
    most = width * rows
    text, unseen = _ends(text, LONGEST_CELL * most, multiline=multiline)
    wrap = folded if words else chopped
    if not unseen and len(text) <= 2 * most:
        lines = [part for line in text.split("\n") for part in wrap(line.expandtabs(4), width)]
        if len(lines) <= rows:
            return lines
    after = (rows - 1) // 3
    head = _rows_of(text[: most * 2], width)[: rows - 1 - after] if rows > 1 else []
    tail = _rows_of(text[-most * 2 :], width)[-after:] if after else []
    hidden = unseen + max(len(text) - sum(map(len, head)) - sum(map(len, tail)), 0)
    if rows == 1:
        note = f" … {len(text) + unseen:,} characters"
        return [cut(text.split("\n", maxsplit=1)[0], max(width - len(note), 0)).removesuffix("…") + note]
    return [*head, cut(f"… {hidden:,} characters are not shown …", width), *tail]


def _ends(text: str, most: int, *, multiline: bool) -> tuple[str, int]:
    """Return a text, made unmistakable, without the middle of a long one, and how many characters that has: making a
    whole one of a megabyte so takes seconds, at every key."""
    unseen = max(len(text) - 2 * most, 0)
    ends = (text[:most], text[-most:]) if unseen else (text,)
    return "".join(unmistakable(end, multiline=multiline) for end in ends), unseen


def _rows_of(text: str, width: int) -> list[str]:
    return [part for line in text.split("\n") for part in chopped(line.expandtabs(4), width)]


class ApprovalPanel(Panel):
    """Asks whether a call may run. `y` is once and `n` is no, whatever is chosen."""

    def __init__(self, question: ExecApproval) -> None:
        super().__init__(question.request_id)
        self._question = question
        self._choices = choices_of(question)
        self._chosen = 0

    def compose_rows(self, width: int, height: int) -> Rows:
        """See `Panel`."""
        if self.entry is None:
            return Rows(approval_rows(self._question, self._chosen, width, height, self.waiting))
        above = approval_rows(self._question, len(self._choices) - 1, width, height - 2, self.waiting)
        return Rows([*above, *self.entry.rows("Tell the model, then Enter:", width)])

    def on_choice_key(self, key: str, character: str | None) -> bool:
        """See `Panel`."""
        match key:
            case "up" | "shift+tab":
                self._chosen = (self._chosen - 1) % len(self._choices)
            case "down" | "tab":
                self._chosen = (self._chosen + 1) % len(self._choices)
            case "enter":
                self._take(self._choices[self._chosen])
            case _:
                found = [choice for choice in self._choices if choice.key == (character or key).lower()]
                if not found:
                    return False
                self._take(found[0])
        self.refresh()
        return True

    def _take(self, choice: Choice) -> None:
        if choice.asks_words:
            self.ask_words(lambda words: self.give(Decision(choice.decision, words or None)))
        else:
            self.give(Decision(choice.decision))
