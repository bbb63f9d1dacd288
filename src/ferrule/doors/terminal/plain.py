"""The terminal interface in lines only: nothing moves or is erased. For screen readers, and for plain terminals."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TextIO

import msgspec

from ferrule.doors.terminal.cell import Cell
from ferrule.doors.terminal.cells import Call, Child, Said, Thought
from ferrule.doors.terminal.commands import run_command
from ferrule.doors.terminal.conversation import Conversation
from ferrule.doors.terminal.dialogs import approval_rows, choices_of
from ferrule.doors.terminal.forms import Field, Form, form_of, form_rows, menu
from ferrule.doors.terminal.patches import PatchCell
from ferrule.doors.terminal.pickers import Item
from ferrule.doors.terminal.prose import Answer
from ferrule.doors.terminal.stored import stored_cells
from ferrule.prompts import expand_prompt
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import (
    Event,
    ExecApproval,
    PlanStep,
    PlanUpdate,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
)
from ferrule.protocol.json_text import JsonValue
from ferrule.rendering.safe import plain, safe
from ferrule.session.rollout import StoredSession
from ferrule.session.talk import Opening, Talk, as_words
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer as Given
from ferrule.tools.questions import Decision, Question
from ferrule.tools.tasks import end_tasks

ROWS = 500
"""Rows of a question, which scroll; what does not fit is told to be hidden."""
TWICE = 2.0
"""Seconds within which a second Ctrl-C quits."""
READ_BYTES = 65536
TICK = 0.2
"""Seconds between two looks whether a question still waits."""
MARKS = {"completed": "done", "in_progress": "now"}


class Plain:
    """One session in lines. Reads whole lines; each is a message, a command or an answer."""

    def __init__(self, opening: Opening, source: TextIO, out: TextIO, columns: int) -> None:
        self._opening = opening
        self._source, self._out, self._columns = source, out, max(columns, 20)
        self.talk = Talk(opening, self._show_event)
        self.themes: list[str] = []
        self._conversation = Conversation(self._add, self._changed)
        self._open: Answer | Thought | None = None
        """A text that is arriving."""
        self._running: set[Call | Child] = set()
        self._headed: tuple[Cell, int] | None = None
        """The call whose first rows were printed last, and how many those were."""
        self._answered: set[str] = set()
        self._at_end = False
        self._rest = b""
        """A line that has not arrived whole."""
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._asked = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = asyncio.Event()
        self._last_interrupt = float("-inf")

    async def run(self) -> None:
        """Talk until the user leaves, or standard input ends. Raises what `open_session` does."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._source.fileno(), self._read)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            opening, settings = self._opening, self._opening.settings
            if opening.sources is not None:
                confirming = asyncio.create_task(self.talk.confirmed(opening.sources))
                await self._until(confirming)
                settings = confirming.result().settings
            await self.talk.open(settings, opening.stored)
            await self._show_session(opening.stored)
            for text in opening.warnings:
                self._conversation.warn(text)
            await self._until(self._ended.wait())
        finally:
            loop.remove_reader(self._source.fileno())
            loop.remove_signal_handler(signal.SIGINT)
            await end_tasks(self._tasks)
            await self.talk.close()

    async def _until(self, end: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> None:
        """Take lines and ask what is asked until something has ended."""
        ending = asyncio.ensure_future(end)
        ending.add_done_callback(lambda _: self._asked.set())
        while not ending.done() and not self._ended.is_set():
            waiting = [one for one in self.talk.questions() if one.request_id not in self._answered]
            if waiting:
                await self._ask(waiting[0])
                continue
            if self._at_end and not self._tasks:
                return
            self._asked.clear()
            line = asyncio.create_task(self._lines.get())
            asked = asyncio.create_task(self._asked.wait())
            await asyncio.wait([line, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if line.done():
                self._take(line.result())
            else:
                line.cancel()
        if not ending.done():
            await end_tasks([ending])

    def _read(self) -> None:
        data = os.read(self._source.fileno(), READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line.decode(errors="replace"))
        if not data:
            asyncio.get_running_loop().remove_reader(self._source.fileno())
            self._lines.put_nowait(None)

    def _interrupt(self) -> None:
        if self.talk.interrupt():
            return
        now = time.monotonic()
        if now - self._last_interrupt < TWICE:
            self._leave()
            return
        self._last_interrupt = now
        self._print("Ctrl-C again quits")

    def _leave(self) -> None:
        self._ended.set()
        self._asked.set()

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._asked.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._print(f"error: {safe(str(error))}")

    def _take(self, line: str | None) -> None:
        if line is None:
            self._at_end = True  # what was asked for is done first
        elif line.startswith("/") and not line.startswith("/prompts:"):
            self._start(run_command(self, line.strip()))
        elif line.startswith("!") and line[1:].strip():
            self._start(self.run_command(line[1:].strip()))
        elif line.strip():
            self._say(line)

    def _say(self, line: str) -> None:
        try:
            must_work = self.talk.say(as_words(expand_prompt(line, self.talk.settings.home)))
        except FerruleError as error:
            self.note(str(error))
            return
        if must_work:
            self._start(self.talk.work())

    async def _ask(self, question: Question) -> None:
        """Show a question and take the answer from the next lines."""
        if isinstance(question, ExecApproval):
            await self._ask_approval(question)
            return
        form = form_of(question)
        values: dict[str, JsonValue] = {}
        for place in range(max(len(form.fields), 1)):
            if not await self._ask_field(question.request_id, form, place, values):
                return
        self._give(question.request_id, form.answer(values))

    async def _ask_approval(self, question: ExecApproval) -> None:
        choices = choices_of(question)
        self._print("\n".join(strip.text for strip in approval_rows(question, -1, self._columns, ROWS)))
        line = await self._answer(question.request_id, f"{', '.join(choice.key for choice in choices)}? ")
        key, _, words = (line or "n").strip().partition(" ")
        chosen = next((choice for choice in choices if choice.key == key.lower()), None)
        if chosen is None:
            self._print("that is none of the answers")
            return
        if chosen.asks_words and not words:
            words = await self._answer(question.request_id, "what is the model to read? ") or ""
        self._give(question.request_id, Decision(chosen.decision, words or None if chosen.asks_words else None))

    async def _ask_field(self, request_id: str, form: Form, place: int, values: dict[str, JsonValue]) -> bool:
        """Ask one field until its answer is usable. Return False if the user declined."""
        field = form.fields[place] if place < len(form.fields) else None
        self._print("\n".join(strip.text for strip in form_rows(form, place, -1, self._columns, ROWS)))
        while True:
            line = await self._answer(request_id, "? ")
            keys = [key for key, _ in menu(form, place, every=True)]
            if line is None or (line == "n" and "n" in keys):
                self._give(request_id, form.declined)
                return False
            if field is None:
                return True
            try:
                values[field.id] = _value(field, line, keys)
            except ValueError as problem:
                self._print(str(problem))
                continue
            return True

    def _give(self, request_id: str, answer: Given) -> None:
        self._answered.add(request_id)
        self.talk.answer(request_id, answer)

    async def _answer(self, request_id: str, prompt: str) -> str | None:
        """Return the next line; None at the end of the input, and where nobody waits for it any more."""
        self._out.write(prompt)
        self._out.flush()
        if self._at_end:
            return None
        line = asyncio.create_task(self._lines.get())
        while not line.done() and not self._ended.is_set() and self._waits(request_id):
            await asyncio.wait([line], timeout=TICK)
        if not line.done():
            line.cancel()
            self._print("")
            return None
        answer = line.result()
        self._at_end = answer is None
        if answer is not None and not self._waits(request_id):
            self._take(answer)  # it was written after the question was gone
            return None
        return answer

    def _waits(self, request_id: str) -> bool:
        return any(one.request_id == request_id for one in self.talk.questions())

    def _show_event(self, event: Event | ToolEvent) -> None:
        if isinstance(event, Question):
            self._asked.set()
            return
        self._conversation.on_event(event)
        match event:
            case PlanUpdate(plan=plan):
                self._end_text()
                self._print("\n".join(map(_step, plan)))
            case TurnAborted():
                self._conversation.abort()
                self._end_text()
            case TurnCompleted() | TurnFailed():
                self._end_text()

    def _add(self, cell: Cell) -> None:
        self._end_text()
        if isinstance(cell, Answer | Thought):
            self._open = cell
        elif isinstance(cell, Call):
            self._running.add(cell)
            if not isinstance(cell, PatchCell):
                head = [strip.text for strip in cell.head(self._columns)]
                self._print_rows(head)
                self._headed = cell, len(head)
        elif isinstance(cell, Child):
            self._running.add(cell)
            self._print_cell(cell)
        elif not isinstance(cell, Said):
            self._print_cell(cell)

    def _changed(self, cell: Cell) -> None:
        if isinstance(cell, Call | Child) and not cell.is_running and cell in self._running:
            self._running.discard(cell)
            printed = self._headed[1] if self._headed is not None and self._headed[0] is cell else 0
            self._print_rows([strip.text for strip in cell.draw(self._columns)[printed:]])

    def _end_text(self) -> None:
        cell, self._open = self._open, None
        if cell is not None:
            self._print_cell(cell)

    def _print_cell(self, cell: Cell) -> None:
        self._print_rows([strip.text for strip in cell.draw(self._columns)])

    def _print_rows(self, rows: Sequence[str]) -> None:
        if rows:
            self._print("\n".join(row.rstrip() for row in rows))

    def _print(self, text: str) -> None:
        self._headed = None
        self._out.write(f"{text}\n")
        self._out.flush()

    async def _show_session(self, stored: StoredSession | None) -> None:
        talk = self.talk
        self._conversation.begin(talk.model_name, talk.settings.cwd, await talk.confinement())
        if stored is not None:
            cells, before = stored_cells(stored)
            self._conversation.last_answer = before.last_answer
            for cell in cells:
                self._print_cell(cell)

    def note(self, text: str) -> None:
        """See `Target`."""
        self._conversation.note(text)

    @property
    def last_answer(self) -> str:
        """See `Target`."""
        return self._conversation.last_answer

    def do(self, what: str) -> None:
        """See `Target`."""
        if what:
            self.note(f"{what} …")

    def pick(self, title: str, items: Sequence[Item], taken: Callable[[str], object]) -> None:
        """See `Target`. The list is printed; the user repeats the command with what was chosen."""
        self._print("\n".join([f"{title}:", *(plain(f"  {item.value}  {item.label}  {item.about}") for item in items)]))

    def send(self, text: str) -> None:
        """See `Target`."""
        self._say(text)

    def set_theme(self, name: str) -> None:
        """See `Target`."""
        self.note("lines have no colours")

    def copy(self, text: str) -> None:
        """See `Target`."""
        self._print(safe(text))

    def leave(self) -> None:
        """See `Target`."""
        self._leave()

    async def begin_anew(self) -> None:
        """See `Target`."""
        await self.talk.open(self.talk.settings)
        await self._show_session(None)

    async def go_on_with(self, session_id: str) -> None:
        """See `Target`."""
        await self._show_session(await self.talk.resume(session_id))

    async def change(self, **settings: object) -> None:
        """See `Target`."""
        now = self.talk.settings
        if isinstance(model := settings.pop("model", None), str):
            settings["model"] = msgspec.structs.replace(now.model, model=model)
        await self.talk.change(msgspec.structs.replace(now, **settings))
        self.note("the session goes on under the new settings")

    async def run_command(self, script: str, *, told: bool = True) -> None:
        """See `Target`."""
        refused = await self.talk.run_command(script, told=told)
        if refused:
            self.note(refused)


def _value(field: Field, line: str, keys: Sequence[str]) -> JsonValue:
    """Return the value of an answer: an option by its number, else words. Raises ValueError that says what is right."""
    if line in keys[: len(field.options)]:
        return field.options[keys.index(line)].value
    if field.read is None:
        raise ValueError("take one of the numbers")
    return field.read(line)


def _step(step: PlanStep) -> str:
    return f"plan: {safe(step.step)} ({MARKS.get(step.status, 'to do')})"


async def run_plain(opening: Opening) -> None:
    """Talk in lines, on standard input and output. Raises what `open_session` does."""
    columns = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 80
    await Plain(opening, sys.stdin, sys.stdout, columns).run()
