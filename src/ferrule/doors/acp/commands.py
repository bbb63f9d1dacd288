"""The slash commands: what an editor offers, and what each of them does."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from ferrule.prompts import PREFIX, CustomPrompt, custom_prompts
from ferrule.protocol.settings import Settings
from ferrule.session.facts import DIFF, INIT, agents_of, memories_in, servers_of, skills_of, status_of, tools_of
from ferrule.session.session import Session
from ferrule.session.talk import Talk


class Target(Protocol):
    """What a command acts on. A session is open."""

    @property
    def talk(self) -> Talk: ...
    @property
    def session(self) -> Session: ...

    def note(self, text: str) -> None:
        """Say something that is Ferrule's own."""


class Command(msgspec.Struct, frozen=True):
    """One command. `says` is what it lets the user say to the model."""

    about: str
    run: Callable[[Target], Awaitable[None]] | None = None
    says: str = ""


async def _compact(desk: Target) -> None:
    await desk.session.compact()


async def _undo(desk: Target) -> None:
    await desk.session.undo()


async def _diff(desk: Target) -> None:
    if refused := await desk.talk.run_command(DIFF, told=False):
        desk.note(refused)


def _telling(text: Callable[[Target], str]) -> Callable[[Target], Awaitable[None]]:
    async def tell(desk: Target) -> None:
        desk.note(text(desk))

    return tell


COMMANDS = {
    "compact": Command("replace the conversation so far by a summary", _compact),
    "undo": Command("take back what the last turn changed", _undo),
    "diff": Command("show what differs from the last commit", _diff),
    "init": Command("let the model write an AGENTS.md", says=INIT),
    "status": Command(
        "show the session, its rights and what it used", _telling(lambda desk: _block(status_of(desk.session)))
    ),
    "mcp": Command(
        "list the MCP servers", _telling(lambda desk: servers_of(desk.session.settings, desk.talk.mcp_states))
    ),
    "tools": Command("list the tools of the model", _telling(lambda desk: _block(tools_of(desk.session)))),
    "skills": Command("list the skills", _telling(lambda desk: skills_of(desk.session.settings))),
    "agents": Command("list the kinds of sub-agents", _telling(lambda desk: agents_of(desk.session.settings))),
    "memory": Command("list what is remembered", _telling(lambda desk: memories_in(desk.session.settings.home))),
}


def available(settings: Settings) -> list[AvailableCommand]:
    """Return every command and custom prompt, as a client offers them."""
    own = [
        AvailableCommand(
            name=f"{PREFIX.removeprefix('/')}{prompt.name}",
            description=prompt.description or "a prompt of yours",
            input=_hint(prompt.argument_hint or "arguments"),
        )
        for prompt in custom_prompts(settings.home)
        if isinstance(prompt, CustomPrompt)
    ]
    return [*(AvailableCommand(name=name, description=one.about) for name, one in COMMANDS.items()), *own]


def command_in(text: str) -> Command | None:
    """Return the command that a text is; None for any other text, which the model reads, also one that begins with a
    path."""
    words = text.split()
    return COMMANDS.get(words[0].removeprefix("/")) if words and words[0].startswith("/") else None


def _hint(text: str) -> AvailableCommandInput:
    return AvailableCommandInput(root=UnstructuredCommandInput(hint=text))


def _block(text: str) -> str:
    return f"```\n{text}\n```"
