"""Questions of the model and of MCP servers, as a form: one field after the other."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from textual.strip import Strip

from ferrule.doors.terminal.dialogs import fitted, middle_cut
from ferrule.doors.terminal.panel import Panel, Rows
from ferrule.doors.terminal.strips import BOLD, CHOSEN, DIM, PLAIN, QUESTION, RED, row
from ferrule.protocol.events import AskedQuestion, ElicitationRequest, UserInputRequest
from ferrule.protocol.json_text import JsonValue
from ferrule.rendering.lookalikes import unmistakable
from ferrule.rendering.width import cut
from ferrule.tools.questions import Answer, Elicited, NoAnswer, UserAnswers

DECLINED = "the user did not want to answer"
NUMBERED = 9
"""Options that have a key of their own; further ones are chosen with the arrows."""
JUMP = 10
"""Options that the arrows to the sides go on by."""
LEAST_ASKED = 2
"""Rows that are left to who asks, and what, whatever the number of options."""


class Option(msgspec.Struct, frozen=True):
    """One answer of a field: what is shown, and the value that it stands for."""

    label: str
    value: JsonValue
    about: str = ""


class Field(msgspec.Struct, frozen=True):
    """One question. `read` turns what was typed into a value, or raises ValueError with what would be right; None: one
    of the options must be taken."""

    id: str
    title: str
    options: tuple[Option, ...] = ()
    read: Callable[[str], JsonValue] | None = None
    start: str = ""


class Form(msgspec.Struct, frozen=True):
    """The fields, and what their values are as an answer. `heading` says who asks."""

    heading: str
    fields: tuple[Field, ...]
    answer: Callable[[dict[str, JsonValue]], Answer]
    declined: Answer


OMITTED = msgspec.UNSET
"""The value of an optional field that was left empty."""


def form_of(question: UserInputRequest | ElicitationRequest) -> Form:
    """Return the form of a question."""
    asker = f" (sub-agent {question.agent_id})" if question.agent_id else ""
    if isinstance(question, UserInputRequest):
        fields = tuple(map(_asked, question.asked()))
        return Form(f"The model asks{asker}", fields, _user_answers, NoAnswer(DECLINED))
    heading = f"The MCP server {question.server} asks{asker}: {question.message}"
    return Form(heading, _properties(question.schema), _elicited, Elicited("decline"))


def _mappings(value: JsonValue) -> list[Mapping[str, JsonValue]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, Sequence) else []


def _asked(question: AskedQuestion) -> Field:
    options = tuple(Option(one.label, one.label, one.description or "") for one in question.offered)
    return Field(question.id, question.question, options, _words if question.is_other or not options else None)


def _user_answers(values: dict[str, JsonValue]) -> Answer:
    return UserAnswers({name: (str(value),) for name, value in values.items()})


def _elicited(values: dict[str, JsonValue]) -> Answer:
    return Elicited("accept", {name: value for name, value in values.items() if value is not OMITTED})


def _properties(schema: JsonValue) -> tuple[Field, ...]:
    """Return the fields of a flat JSON schema, as MCP has it in elicitations."""
    if not isinstance(schema, Mapping) or not isinstance(properties := schema.get("properties"), Mapping):
        return ()
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, Sequence) else set()
    return tuple(
        _property(name, about, name in needed) for name, about in properties.items() if isinstance(about, Mapping)
    )


def _property(name: str, about: Mapping[str, JsonValue], needed: bool) -> Field:
    title = str(about.get("title") or name)
    if description := about.get("description"):
        title += f": {description}"
    start = about.get("default")
    kind = _kind(about.get("type"))
    read: Callable[[str], JsonValue]
    if kind == "array":
        items = about.get("items")
        allowed = _options(items) if isinstance(items, Mapping) else ()
        known = ", ".join(option.label for option in allowed)
        title += f" (several, with commas between them{f': {known}' if known else ''})"
        read = partial(_several, allowed)
        start = ", ".join(map(str, start)) if isinstance(start, list | tuple) else None
    elif options := _options(about):
        return Field(name, title, options if needed else (*options, Option("leave it out", OMITTED)))
    else:
        read = {"integer": _integer, "number": _number}.get(kind, _words)
    return Field(name, title, (), read if needed else _optional(read), "" if start is None else str(start))


def _kind(given: JsonValue) -> str:
    """Return the type of a property; of several, the first that is not `null`."""
    kinds = given if isinstance(given, list | tuple) else (given,)
    return next((str(kind) for kind in kinds if kind not in ("null", None)), "")


def _options(about: Mapping[str, JsonValue]) -> tuple[Option, ...]:
    if about.get("type") == "boolean":
        return (Option("yes", True), Option("no", False))
    titled = _mappings(about.get("oneOf") or about.get("anyOf"))
    if titled:
        return tuple(Option(str(one.get("title") or one.get("const")), one.get("const")) for one in titled)
    values, names = about.get("enum"), about.get("enumNames")
    if not isinstance(values, Sequence) or isinstance(values, str):
        return ()
    labels = names if isinstance(names, Sequence) and len(names) == len(values) else values
    return tuple(Option(str(label), value) for label, value in zip(labels, values, strict=True))


def _words(text: str) -> JsonValue:
    if not text:
        raise ValueError("an answer is needed here")
    return text


def _integer(text: str) -> JsonValue:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number is needed here") from None


def _number(text: str) -> JsonValue:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("a number is needed here")
    return number


def _several(allowed: Sequence[Option], text: str) -> JsonValue:
    """Read a list; of options, where they are given."""
    parts = [part for part in map(str.strip, text.split(",")) if part]
    if not parts:
        raise ValueError("an answer is needed here")
    if not allowed:
        return parts
    values = {name: option.value for option in allowed for name in (str(option.value), option.label)}
    if unknown := [part for part in parts if part not in values]:
        raise ValueError(f"{unknown[0]} is none of {', '.join(option.label for option in allowed)}")
    return [values[part] for part in parts]


def _optional(read: Callable[[str], JsonValue]) -> Callable[[str], JsonValue]:
    return lambda text: read(text) if text else OMITTED


def form_rows(
    form: Form, place: int, chosen: int, width: int, height: int, problem: str = "", typed: Sequence[Strip] = ()
) -> list[Strip]:
    """Return the form at field number `place` in at most `height` rows: what was asked above, the choices in sight."""
    field = form.fields[place] if place < len(form.fields) else None
    told = [row((cut(problem, width), RED))] if problem else []
    labels = list(typed) or _label_rows(form, place, chosen, width, height - LEAST_ASKED - len(told))
    room = max(height - len(labels) - len(told), 1)
    count = f" ({place + 1} of {len(form.fields)})" if len(form.fields) > 1 else ""
    asked = form.heading + count, field.title if field else ""
    wanted = len(fitted(asked[1], width, room - 1, words=True))
    heading = fitted(asked[0], width, max(room // 3, room - wanted, 1), words=True, multiline=False)
    title = fitted(asked[1], width, room - len(heading), words=True)
    above = [*(row((line, QUESTION)) for line in heading), *(row((line, BOLD)) for line in title)]
    return [*above[:room], *told, *labels][-max(height, len(labels)) :]


def _label_rows(form: Form, place: int, chosen: int, width: int, most: int) -> list[Strip]:
    """Return a row for each choice; of more options than there is room for, those around the chosen one, and how many
    are out of sight. With none chosen, in lines, all of them."""
    choices = menu(form, place, every=chosen < 0)
    options = len(form.fields[place].options) if place < len(form.fields) else 0
    shown, told = range(options), list[Strip]()
    if chosen >= 0 and len(choices) > max(most, 0):
        room = max(most - (len(choices) - options) - 1, 1)
        first = max(min(chosen - room // 2, options - room), 0)
        shown = range(first, min(first + room, options))
        if options > room:
            told = [row((cut(f"… {options - room:,} more: ↑ ↓, by {JUMP} ← →", width), DIM))]
    drawn = [_option_row(*choices[index], index == chosen, width) for index in shown]
    rest = [_option_row(*choices[index], index == chosen, width) for index in range(options, len(choices))]
    return [*drawn, *told, *rest]


def menu(form: Form, place: int, *, every: bool = False) -> list[tuple[str, str]]:
    """Return the keys and labels to choose from at a field. `every` option has a number where lines are typed."""
    if place >= len(form.fields):
        return [("y", "accept"), ("n", "decline")]
    field = form.fields[place]
    options = [
        (str(number) if every or number <= NUMBERED else " ", f"{option.label}  {option.about}".rstrip())
        for number, option in enumerate(field.options, 1)
    ]
    words = [("w", "in other words" if options else "write an answer")] if field.read is not None else []
    return [*options, *words, ("n", "decline" if isinstance(form.declined, Elicited) else "no answer")]


def _option_row(key: str, label: str, chosen: bool, width: int) -> Strip:
    shown = unmistakable(label, multiline=False)
    return row((f" {key} ", BOLD), (middle_cut(shown, width - 3), CHOSEN if chosen else PLAIN))


class FormPanel(Panel):
    """Asks field after field. Esc leaves a field that is typed; `n` declines."""

    def __init__(self, request_id: str, form: Form) -> None:
        super().__init__(request_id)
        self._form = form
        self._place = 0
        self._chosen = 0
        self._values: dict[str, JsonValue] = {}
        self._problem = ""
        self._begin_field()

    def _begin_field(self) -> None:
        self._chosen, self._problem = 0, ""
        field = self._field
        if field is not None and not field.options and field.read is not None:
            self.ask_words(self._typed, field.start)

    @property
    def _field(self) -> Field | None:
        return self._form.fields[self._place] if self._place < len(self._form.fields) else None

    def compose_rows(self, width: int, height: int) -> Rows:
        """See `Panel`."""
        typed = [] if self.entry is None else self.entry.rows("Write, then Enter; Esc leaves:", width)
        return Rows(form_rows(self._form, self._place, self._chosen, width, height, self._problem, typed))

    def on_choice_key(self, key: str, character: str | None) -> bool:
        """See `Panel`."""
        choices = menu(self._form, self._place)
        if key in ("up", "shift+tab", "down", "tab"):
            self._chosen = (self._chosen + (-1 if key in ("up", "shift+tab") else 1)) % len(choices)
            return True
        if key in ("left", "right"):
            self._chosen = min(max(self._chosen + (-JUMP if key == "left" else JUMP), 0), len(choices) - 1)
            return True
        keys = [choice for choice, _ in choices]
        wanted = (character or key).lower()
        if key == "enter":
            self._choose(self._chosen)
        elif wanted in keys and wanted != " ":
            self._choose(keys.index(wanted))
        else:
            return False
        return True

    def _choose(self, index: int) -> None:
        field = self._field
        key = menu(self._form, self._place)[index][0]
        if key == "n":
            self.give(self._form.declined)
        elif field is None:
            self.give(self._form.answer(self._values))
        elif key == "w":
            self.ask_words(self._typed, field.start)
        else:
            self._take(field, field.options[index].value)

    def _typed(self, text: str) -> None:
        field = self._field
        if field is None or field.read is None:
            return
        try:
            value = field.read(text)
        except ValueError as problem:
            self._problem = str(problem)
            return
        self._take(field, value)

    def _take(self, field: Field, value: JsonValue) -> None:
        self._values[field.id] = value
        self.entry = None
        self._place += 1
        if self._place >= len(self._form.fields):
            self.give(self._form.answer(self._values))
        else:
            self._begin_field()
