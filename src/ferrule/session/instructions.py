"""Instruct the model before the user speaks: how to work, where it is, and what the repository's owner wants."""

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path, PurePath

from ferrule.config import project_root
from ferrule.history.compaction import user_message
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.settings import PROJECT_DOC_BYTES, ReasoningEffort, Settings
from ferrule.reading import Unreadable, read_inside
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


AGENTS_FILE = "AGENTS.md"
OVERRIDE_FILE = "AGENTS.override.md"
"""Read instead of an AGENTS.md beside it: for one's own words, which are not committed."""


def with_examples(instructions: str, examples: Iterable[tuple[str, Sequence[str]]]) -> str:
    """The instructions, and behind them how tools are used, under `# Examples`."""
    shown = [f"## {name}\n\n" + "\n\n".join(texts) for name, texts in examples]
    return "\n\n".join([instructions, "# Examples", *shown]) if shown else instructions


def opening_items(
    state: ConversationState, settings: Settings, warn: Callable[[str], object]
) -> Iterator[ResponseItem]:
    """Yield the messages before the user's first. `warn` is told what was left out."""
    guidance = agents_text(
        Path(state.cwd),
        warn,
        fallbacks=settings.project_doc_fallback_filenames,
        limit=settings.project_doc_max_bytes,
        home=state.home,
    )
    if guidance:
        yield user_message(f"# AGENTS.md instructions for {state.cwd}\n\n{guidance}")
    yield user_message(environment_context(state))


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
    return "\n".join(["<environment_context>", *lines, "</environment_context>"])


def agents_text(
    cwd: Path,
    warn: Callable[[str], object] = lambda text: None,
    *,
    fallbacks: Sequence[str] = (),
    limit: int = PROJECT_DOC_BYTES,
    home: str | None = None,
) -> str:
    """Return the user's own AGENTS.md in `home`, then those of the repository from its top down to `cwd`, the more
    special later, cut at `limit` bytes.

    In each folder the first that says something counts: `AGENTS.override.md`, `AGENTS.md`, then the `fallbacks`. `warn`
    is told of one that is there but is not read: it is no regular file, or a link out of the repository.
    """
    names = (OVERRIDE_FILE, AGENTS_FILE, *fallbacks)
    places = [(home, ".", names[:2])] if home else []
    places += [(top, folder, names) for top, folder in _from_repository_top(os.path.realpath(cwd))]
    texts: list[str] = []
    for top, folder, wanted in places:
        if limit <= 0:
            break
        data = _first_that_speaks(top, [os.path.normpath(os.path.join(folder, name)) for name in wanted], limit, warn)
        limit -= len(data)
        if data:
            texts.append(data.decode(errors="replace").strip())
    return "\n\n".join(texts)


def _first_that_speaks(top: str, paths: Iterable[str], room: int, warn: Callable[[str], object]) -> bytes:
    for path in paths:
        try:
            data = read_inside(top, path, room, cut=True)
        except FileNotFoundError:
            continue
        except Unreadable as problem:
            warn(f"{os.path.join(top, path)} {problem}; the model is not told what it says")
            continue
        if data.strip():
            return data
    return b""


def _from_repository_top(cwd: str) -> Iterator[tuple[str, str]]:
    """Yield the repository's top with each folder from it down to `cwd`."""
    top = project_root(cwd)
    parts = PurePath(cwd).relative_to(top).parts
    for depth in range(len(parts) + 1):
        yield top, os.path.join(*parts[:depth]) if depth else "."
