"""Instruct the model before the user speaks: how to work, where it is, and what the repository's owner wants."""

import platform
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from ferrule.history.compaction import user_message
from ferrule.protocol.content import text_of
from ferrule.protocol.items import Message, ResponseItem
from ferrule.protocol.json_text import encodable
from ferrule.protocol.settings import ReasoningEffort
from ferrule.session.guidance import Guidance
from ferrule.session.skills import Skills
from ferrule.tools.conversation import ConversationState

BASE_INSTRUCTIONS = """\
You are a coding agent. You work in the user's repository through tools, and the user reads your last message.

Persist. Go on until the task is done and checked, then end your turn. Do not stop at a plan or at the first obstacle; \
when one way fails, read the error and try another. Hand back to the user only for what nobody but the user can decide.

Look instead of guessing. When you are not sure what a file holds, how a command behaves or where something is \
defined, use the tools to find out before you rely on it. Never make up file contents, output or results.

Plan and reflect. Before a call, know what you expect of it; after it, compare. Keep a plan for work of several steps \
and update it as you learn. Make small changes, run the tests that concern them, and read what you changed once more.

Change only what the task needs, in the style of the code around it. Leave the user's other changes alone, and never \
discard work that you did not make. Say plainly what you did, what you checked, and what is left."""

ENVIRONMENT = "<environment_context>"
"""How the message begins that tells where the model works."""

_LITTLE = """\
Explore little. Look at what the task names and at what you will change, in two or three calls made together. Stop \
exploring as soon as you can name the change; act then, even if you are not certain, and let the tests correct you."""
_ENOUGH = """\
Explore enough. Begin wide, with calls made together, then look closely at what matters. Stop exploring once you know \
which lines to change and where searches agree; search again only if a check fails or something new turns up."""
_MUCH = """\
Explore thoroughly. Follow what you change to its callers, its tests and its documents, and consider more than one way \
before you choose. Stop exploring once further searches bring nothing new; then settle open questions yourself, and go \
on until the whole task is done."""
_EXPLORING: dict[ReasoningEffort | None, str] = {
    **dict.fromkeys(("none", "minimal", "low"), _LITTLE),
    **dict.fromkeys(("high", "xhigh", "max"), _MUCH),
}


def base_instructions(effort: ReasoningEffort | None) -> str:
    """Return what every model is told: how far to explore, and when to stop, follows the reasoning effort."""
    return f"{BASE_INSTRUCTIONS}\n\n{_EXPLORING.get(effort, _ENOUGH)}"


def with_examples(instructions: str, examples: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return the instructions, and behind them how tools are used, under `# Examples`."""
    shown = [f"## {name}\n\n" + "\n\n".join(texts) for name, texts in examples]
    return "\n\n".join([instructions, "# Examples", *shown]) if shown else instructions


def opening_items(state: ConversationState, guidance: Guidance, skills: Skills) -> Iterator[ResponseItem]:
    """Yield the messages before the user's first."""
    yield from guidance.opening()
    yield from skills.opening()
    yield user_message(environment_context(state))


def changed_environment(state: ConversationState, items: Sequence[ResponseItem]) -> ResponseItem | None:
    """Return the message that tells where the model works, unless the newest such message says the same: a session can
    go on in another folder, with other rights, or on another day."""
    now = encodable(environment_context(state))
    views = (item.view for item in reversed(items))
    told = (text_of(view.content) for view in views if isinstance(view, Message) and view.role == "user")
    before = next((text for text in told if text.startswith(ENVIRONMENT)), "")
    return None if before == now else user_message(now)


def environment_context(state: ConversationState) -> str:
    """Describe where the model works: directory, rights, shell, date."""
    fields = {
        "cwd": state.cwd,
        "approval_policy": state.permissions.approval_policy,
        "sandbox_mode": state.permissions.sandbox_policy.__struct_config__.tag,
        "shell": state.commands.shell.kind,
        "platform": platform.system().lower(),
        "current_date": date.today().isoformat(),
    }
    lines = (f"  <{name}>{value}</{name}>" for name, value in fields.items())
    return "\n".join([ENVIRONMENT, *lines, "</environment_context>"])
