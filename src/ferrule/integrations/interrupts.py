"""Approvals by LangGraph's `interrupt`, in the form of LangChain's `HumanInTheLoopMiddleware`.

LangGraph runs a node again from its beginning after an interrupt, and matches answers to interrupts by their order
alone. So all that the calls of one run of a node ask is asked at once, before any of them begins; each interrupt is
preceded by a note of what it shows, kept where LangGraph keeps the answers, so that an answer counts for nothing else,
in another process too; and a call that ran beside an interrupted one is not run again.
"""

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard

import msgspec
from langchain_core.messages import AIMessage
from langgraph.config import get_config
from langgraph.prebuilt import ToolRuntime
from langgraph.types import interrupt
from pydantic import AfterValidator, BaseModel, Field

from ferrule.protocol.events import ExecApproval
from ferrule.protocol.payload import ToolOutput
from ferrule.session.toolset import Toolset

SCRATCHPAD, SEND, TASK, RESUME = "__pregel_scratchpad", "__pregel_send", "__pregel_task_id", "__resume__"
"""Where a task of LangGraph 1.2 finds the answers to its interrupts, what it keeps them by, and its id."""
PULL = "__pregel_pull"
"""The path of a task that an edge of the graph started: a `ToolNode` runs all calls of the last message in it."""
NOTE, FIRST = "ferrule.shown", "ferrule.first"
ALLOWED = ["approve", "edit", "reject", "respond"]
MAX_ROUNDS = 1024
"""Runs of nodes that are remembered."""
MAX_RUNS = 64
"""Calls whose outputs are kept for when their node is run again."""


class Approve(BaseModel):
    """The call runs."""

    type: Literal["approve"]


class EditedAction(BaseModel):
    """What runs instead: the same tool with other arguments."""

    name: str
    args: dict[str, Any]


class Edit(BaseModel):
    """The call runs as the user has changed it."""

    type: Literal["edit"]
    edited_action: EditedAction


class Reject(BaseModel):
    """The call does not run; the model reads the message."""

    type: Literal["reject"]
    message: str | None = None


class Respond(BaseModel):
    """The call does not run; the message is its output."""

    type: Literal["respond"]
    message: str


Answer = Approve | Edit | Reject | Respond


class Response(BaseModel):
    """What `Command(resume=...)` brings: a decision for each action of the request, in its order."""

    decisions: list[Annotated[Answer, Field(discriminator="type")]]


class PendingCall(msgspec.Struct, frozen=True):
    """A call: `tool` is its name for the model, `called` the one for `Toolset.call`."""

    tool: str
    called: str
    arguments: dict[str, Any]
    call_id: str

    @property
    def key(self) -> "Key":
        """What tells it from the others in a message: some servers give several calls one id."""
        return self.call_id, self.tool, json.dumps(self.arguments, sort_keys=True)

    @property
    def text(self) -> str:
        """The arguments as JSON, also where they hold what UTF-8 does not: Ferrule tells the model then."""
        return json.dumps(self.arguments)


Key = tuple[str, str, str]
Shown = list[list[str]]
"""The calls of a request, by id, and the fingerprints of their questions."""
Told = dict[tuple[str, str], Answer]
"""The answers by the same."""


class Decided(NamedTuple):
    """What the user has decided, and the question; None: the call asks nothing any more."""

    answer: Answer
    question: ExecApproval | None


class _Round(msgspec.Struct, frozen=True):
    """One run of a node: its scratchpad, the answers for its calls, and which of them have not come for theirs."""

    scratchpad: Any
    answers: "asyncio.Task[dict[Key, Decided]]"
    waiting: set[Key]


class _Ran(msgspec.Struct):
    """What a call has put out in one run of its node, and how often it was asked for: a middleware may run it twice."""

    scratchpad: Any
    outputs: list[Future[ToolOutput]]
    asked: int = 0


class Approvals:
    """What the user decides about calls in a graph. `names` maps the model's names of the tools to Ferrule's."""

    def __init__(self, toolset: Toolset, names: Mapping[str, str]) -> None:
        self._toolset = toolset
        self._names = names
        self._rounds: OrderedDict[int, _Round] = OrderedDict()
        self._runs: OrderedDict[tuple[str, Key], _Ran] = OrderedDict()

    async def decided(self, call: PendingCall, runtime: ToolRuntime | None) -> Decided | None:
        """Return what the user has decided; None if nothing is asked, or there is no graph. Raises `GraphInterrupt`."""
        scratchpad = _configurable().get(SCRATCHPAD)
        if scratchpad is None:
            return None
        current = self._rounds.get(id(scratchpad)) or self._begin(scratchpad, self._beside(call, runtime))
        if call.key not in current.waiting:
            return (await self._ask([call], first=False)).get(call.key)
        current.waiting.discard(call.key)
        return (await asyncio.shield(current.answers)).get(call.key)

    async def once(self, call: PendingCall, run: Callable[[], Awaitable[ToolOutput]]) -> ToolOutput:
        """Run a call, unless its node is run again after an interrupt and this process has run it there."""
        task, scratchpad = _configurable().get(TASK), _configurable().get(SCRATCHPAD)
        if task is None or scratchpad is None:
            return await run()
        ran = self._runs.get((task, call.key))
        if ran is None or ran.scratchpad is not scratchpad:
            ran = _Ran(scratchpad, ran.outputs if ran is not None and _is_resumed(scratchpad) else [])
            self._runs[task, call.key] = ran
            while len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)
        index, ran.asked = ran.asked, ran.asked + 1
        if index < len(ran.outputs):
            return await asyncio.shield(asyncio.wrap_future(ran.outputs[index]))
        future: Future[ToolOutput] = Future()
        ran.outputs.append(future)
        try:
            output = await run()
        except BaseException:
            ran.outputs.remove(future)
            future.cancel()
            raise
        future.set_result(output)
        return output

    def _begin(self, scratchpad: Any, calls: Sequence[PendingCall]) -> _Round:
        answers = asyncio.ensure_future(self._ask(calls, first=True))
        answers.add_done_callback(lambda task: task.cancelled() or task.exception())  # all who wait may be cancelled
        while len(self._rounds) >= MAX_ROUNDS:
            self._rounds.popitem(last=False)
        begun = self._rounds[id(scratchpad)] = _Round(scratchpad, answers, {call.key for call in calls})
        return begun

    def _beside(self, call: PendingCall, runtime: ToolRuntime | None) -> Sequence[PendingCall]:
        """Return the calls of our tools that this run of the node has, in the message's order."""
        path = get_config().get("metadata", {}).get("langgraph_path") or ("",)
        if runtime is None or path[0] != PULL:
            return [call]
        for message in _last_messages(runtime.state):
            ours = [one for one in message.tool_calls if one["name"] in self._names]
            calls = [PendingCall(one["name"], self._names[one["name"]], one["args"], one["id"] or "") for one in ours]
            if call.key in {one.key for one in calls}:
                return calls
        return [call]

    async def _ask(self, calls: Sequence[PendingCall], *, first: bool) -> dict[Key, Decided]:
        """Ask until all that the calls ask has its answer. `first`: they have not been asked about in this run of their
        node, so what was answered before it came to be run again counts."""
        told = _answered_before(calls) if first else {}
        answers: dict[Key, Decided] = {}
        while asked := [
            (call, question)
            for call in calls
            if call.key not in answers
            and not (first and self._has_run(call))
            and (question := await self._question(call)) is not None
        ]:
            waiting = []
            for call, question in asked:
                if (call.call_id, question.fingerprint) in told:
                    answers[call.key] = Decided(told[call.call_id, question.fingerprint], question)
                else:
                    waiting.append((call, question))
            if waiting:
                shown = _noted([[call.call_id, question.fingerprint] for call, question in waiting], first)
                told |= _told(shown, interrupt(_request(waiting), response_schema=_response_to(shown, calls)))
        return _unasked(calls, told) | answers

    def _has_run(self, call: PendingCall) -> bool:
        ran = self._runs.get((str(_configurable().get(TASK)), call.key))
        return ran is not None and bool(ran.outputs) and _is_resumed(_configurable()[SCRATCHPAD])

    async def _question(self, call: PendingCall) -> ExecApproval | None:
        toolset = self._toolset
        return await toolset.on_own_loop(lambda: toolset.question_of(call.called, call.text, call.call_id))


def _configurable() -> Mapping[str, Any]:
    configurable: Mapping[str, Any] = get_config().get("configurable", {})
    return configurable


def _last_messages(state: object) -> Iterable[AIMessage]:
    """Return what may be the message whose calls run: a state is a list of messages, or has one, by any name."""
    if isinstance(state, list):
        lists: Iterable[object] = [state]
    else:
        lists = (state if isinstance(state, dict) else getattr(state, "__dict__", {})).values()
    for messages in lists:
        if isinstance(messages, list):
            yield from [message for message in reversed(messages) if isinstance(message, AIMessage)][:1]


def _is_resumed(scratchpad: Any) -> bool:
    return bool(scratchpad.resume) or scratchpad.get_null_resume(False) is not None


def _answered_before(calls: Sequence[PendingCall]) -> Told:
    """Return what was answered before the node came to be run again. What nobody has answered is forgotten."""
    scratchpad = _configurable()[SCRATCHPAD]
    answers: list[Any] = scratchpad.resume
    told: Told = {}
    for place, note in [(place, one) for place, one in enumerate(answers) if _is_note(one) and one[FIRST]]:
        if place + 1 == len(answers) and scratchpad.get_null_resume(False) is None:
            del answers[place]
            break
        scratchpad.interrupt_counter()
        told |= _told(note[NOTE], interrupt(None, response_schema=_response_to(note[NOTE], calls)))
    return told


def _noted(shown: Shown, first: bool) -> Shown:
    """Note what the next interrupt of this task shows. Return what it did show, if it is reached again.

    The note takes the place of an answer, before the interrupt's own.
    """
    conf = _configurable()
    answers: list[Any] = conf[SCRATCHPAD].resume
    index: int = conf[SCRATCHPAD].interrupt_counter()
    if index == len(answers):
        answers.append({NOTE: shown, FIRST: first})
    noted = answers[index] if index < len(answers) else None
    conf[SEND]([(RESUME, answers[: index + 1])])
    return noted[NOTE] if _is_note(noted) else shown


def _is_note(answer: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(answer, dict) and NOTE in answer


def _told(shown: Shown, response: Response) -> Told:
    return {(call_id, seen): answer for (call_id, seen), answer in zip(shown, response.decisions, strict=True)}


def _unasked(calls: Sequence[PendingCall], told: Told) -> dict[Key, Decided]:
    """Return what the user has said of calls in case they ask nothing any more, as under another policy: who said no
    means no. An approval is needless then, and where calls have one id nobody knows whose an answer was."""
    ids = Counter(call.call_id for call in calls)
    last = {call_id: answer for (call_id, _), answer in told.items() if ids[call_id] == 1}
    return {
        call.key: Decided(last[call.call_id], None)
        for call in calls
        if not isinstance(last.get(call.call_id), Approve | None)
    }


def _request(asked: Sequence[tuple[PendingCall, ExecApproval]]) -> dict[str, Any]:
    """Return what the user is shown: LangChain's `HITLRequest`, and whose calls these are."""
    return {
        "action_requests": [
            {
                "name": call.tool,
                "args": call.arguments,
                "description": _description(question),
                "tool_call_id": call.call_id,
            }
            for call, question in asked
        ],
        "review_configs": [{"action_name": call.tool, "allowed_decisions": ALLOWED} for call, _ in asked],
    }


def _description(question: ExecApproval) -> str:
    place = f"in {question.cwd}" if question.cwd else ""
    return "\n".join(line for line in (question.reason, question.text, place) if line)


def _response_to(shown: Shown, calls: Iterable[PendingCall]) -> Any:
    """Return the type of the response to a request. LangGraph lets an answer that does not fit be given again."""
    tools = {call.call_id: call.tool for call in calls}

    def fitting(response: Response) -> Response:
        if len(response.decisions) != len(shown):
            raise ValueError(f"{len(shown)} decisions are needed, one for each action, not {len(response.decisions)}")
        for (call_id, _), answer in zip(shown, response.decisions, strict=True):
            if isinstance(answer, Edit) and answer.edited_action.name != tools.get(call_id, answer.edited_action.name):
                raise ValueError(f"an edit keeps the tool, here {tools[call_id]}; its arguments may change")
        return response

    return Annotated[Response, AfterValidator(fitting)]
