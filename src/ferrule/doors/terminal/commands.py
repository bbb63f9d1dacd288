"""The `/commands`: one table, and what each of them does."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from ferrule.doors.terminal.pickers import Item, session_item
from ferrule.prompts import CustomPrompt, custom_prompts
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.permissions import AskForApproval, as_approval_policy
from ferrule.session.facts import DIFF, INIT, agents_of, memories_in, servers_of, skills_of, status_of, tools_of
from ferrule.session.index import SessionIndex
from ferrule.session.talk import Talk


class Target(Protocol):
    """What a command acts on: the screen and the session."""

    @property
    def talk(self) -> Talk: ...
    @property
    def last_answer(self) -> str: ...
    @property
    def themes(self) -> list[str]: ...

    def note(self, text: str) -> None:
        """Show a line of the program."""

    def do(self, what: str) -> None:
        """Say what happens now; empty: nothing any more."""

    def pick(self, title: str, items: Sequence[Item], taken: Callable[[str], object]) -> None:
        """Let the user choose one of the items."""

    def send(self, text: str) -> None:
        """Say something to the model."""

    def set_theme(self, name: str) -> None:
        """Change the colours."""

    def copy(self, text: str) -> None:
        """Put a text on the clipboard."""

    def leave(self) -> None:
        """End the program."""

    async def begin_anew(self) -> None:
        """Begin a new session."""

    async def go_on_with(self, session_id: str) -> None:
        """Go on with a stored session."""

    async def change(self, **settings: object) -> None:
        """Go on with the same session under other settings."""

    async def run_command(self, script: str, *, told: bool = True) -> None:
        """Run a command as the model's are; `told`: the model reads of it."""


class Command(msgspec.Struct, frozen=True):
    """One command. `idle`: it waits for the end of the turn, and says so."""

    name: str
    about: str
    run: Callable[[Target, str], Awaitable[None]]
    idle: bool = False


async def _model(desk: Target, word: str) -> None:
    if word:
        await desk.change(model=word)
        return
    names = await desk.talk.models()
    desk.pick("Model", [Item(name, name) for name in names], lambda name: desk.send(f"/model {name}"))


async def _approvals(desk: Target, word: str) -> None:
    if word:
        await desk.change(approval_policy=as_approval_policy(word))
        return
    items = [Item(str(policy), str(policy), POLICIES[policy]) for policy in AskForApproval]
    desk.pick("Ask before", items, lambda name: desk.send(f"/approvals {name}"))


POLICIES = {
    AskForApproval.UNTRUSTED: "everything that is not known to only read",
    AskForApproval.ON_FAILURE: "what failed in the sandbox",
    AskForApproval.ON_REQUEST: "what wants to leave the sandbox",
    AskForApproval.NEVER: "nothing: what would need an answer is refused",
}


async def _status(desk: Target, word: str) -> None:
    if (session := desk.talk.session) is not None:
        desk.note(status_of(session))


async def _diff(desk: Target, word: str) -> None:
    await desk.run_command(DIFF, told=False)


async def _compact(desk: Target, word: str) -> None:
    if (session := desk.talk.session) is not None:
        desk.do("Compacting")
        try:
            done = await session.compact()
        finally:
            desk.do("")
        if done is None:
            desk.note("interrupted")


async def _new(desk: Target, word: str) -> None:
    await desk.begin_anew()


async def _resume(desk: Target, word: str) -> None:
    if word:
        await desk.go_on_with(word)
        return
    entries = SessionIndex(desk.talk.settings.home).entries()
    here = [entry for entry in entries if entry.cwd == desk.talk.settings.cwd]
    others = [entry for entry in entries if entry.cwd != desk.talk.settings.cwd]
    items = [session_item(entry) for entry in (*here, *others)]
    desk.pick("Session", items, lambda name: desk.send(f"/resume {name}"))


async def _fork(desk: Target, word: str) -> None:
    session = desk.talk.session
    if session is not None:
        await desk.go_on_with(desk.talk.fork(session))
        desk.note(f"this is a copy of {session.id}, which stays as it is")


async def _undo(desk: Target, word: str) -> None:
    if (session := desk.talk.session) is not None:
        await session.undo()


async def _mcp(desk: Target, word: str) -> None:
    if (session := desk.talk.session) is not None:
        desk.note(servers_of(session.settings, desk.talk.mcp_states))


async def _tools(desk: Target, word: str) -> None:
    if (session := desk.talk.session) is not None:
        desk.note(tools_of(session))


async def _skills(desk: Target, word: str) -> None:
    desk.note(skills_of(desk.talk.settings))


async def _agents(desk: Target, word: str) -> None:
    desk.note(agents_of(desk.talk.settings))


async def _memory(desk: Target, word: str) -> None:
    desk.note(memories_in(desk.talk.settings.home))


async def _init(desk: Target, word: str) -> None:
    desk.send(INIT)


async def _copy(desk: Target, word: str) -> None:
    if not desk.last_answer:
        desk.note("there is no answer to copy yet")
        return
    desk.copy(desk.last_answer)
    desk.note("the last answer was sent to the terminal's clipboard")


async def _theme(desk: Target, word: str) -> None:
    if word:
        desk.set_theme(word)
        return
    items = [Item(name, name) for name in desk.themes]
    desk.pick("Theme", items, lambda name: desk.send(f"/theme {name}"))


async def _help(desk: Target, word: str) -> None:
    width = max(len(command.name) for command in COMMANDS)
    desk.note("\n".join([*(f"{command.name:<{width}}  {command.about}" for command in COMMANDS), "", KEYS]))


async def _quit(desk: Target, word: str) -> None:
    desk.leave()


KEYS = """\
@file   completes a path         !command  runs a command as the model would
Esc     interrupts               Esc Esc   goes back to an earlier message
Ctrl-O  unfolds and folds        Ctrl-G    opens your editor
Ctrl-C  twice quits"""

COMMANDS = (
    Command("/model", "choose the model", _model, idle=True),
    Command("/approvals", "choose when you are asked", _approvals, idle=True),
    Command("/status", "show the session, its rights and what it used", _status),
    Command("/diff", "show what differs from the last commit", _diff, idle=True),
    Command("/compact", "replace the conversation so far by a summary", _compact, idle=True),
    Command("/new", "begin a new session", _new, idle=True),
    Command("/resume", "go on with an earlier session", _resume, idle=True),
    Command("/fork", "go on in a copy of this session", _fork, idle=True),
    Command("/undo", "take back what the last turn changed", _undo, idle=True),
    Command("/mcp", "list the MCP servers", _mcp),
    Command("/tools", "list the tools of the model", _tools),
    Command("/skills", "list the skills", _skills),
    Command("/agents", "list the kinds of sub-agents", _agents),
    Command("/memory", "list what is remembered", _memory),
    Command("/init", "let the model write an AGENTS.md", _init),
    Command("/copy", "copy the last answer", _copy),
    Command("/theme", "choose the colours", _theme),
    Command("/help", "show the commands and keys", _help),
    Command("/quit", "leave", _quit),
)


def suggested(home: str) -> list[tuple[str, str]]:
    """Return every command and custom prompt with what it does."""
    prompts = [one for one in custom_prompts(home) if isinstance(one, CustomPrompt)]
    own = [(f"/prompts:{prompt.name}", prompt.description or "a prompt of yours") for prompt in prompts]
    return [*((command.name, command.about) for command in COMMANDS), *own]


async def run_command(desk: Target, text: str) -> None:
    """Do what a text that begins with `/` says; what is wrong with it is told, and it is never sent."""
    name, _, rest = text.partition(" ")
    command = next((one for one in COMMANDS if one.name == name), None)
    if command is None:
        desk.note(f"there is no command {name}; /help lists those there are")
        return
    if command.idle and desk.talk.is_working:
        desk.note(f"{name} has to wait until the turn has ended; Esc interrupts it")
        return
    if command.idle and desk.talk.runs_command:
        desk.note(f"{name} has to wait until your command has ended; Esc interrupts it")
        return
    try:
        await command.run(desk, rest.strip())
    except FerruleError as error:
        desk.note(str(error))
    await desk.talk.catch_up()
