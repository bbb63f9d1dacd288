"""What a user asks about a session, as text, and the prompts that a word stands for."""

from collections.abc import Mapping

from ferrule.memory import MemoryStore
from ferrule.protocol.prices import money
from ferrule.protocol.settings import Settings
from ferrule.session.session import Session
from ferrule.session.skills import installed

INIT = """\
Look at this project and write an AGENTS.md at its top for those who will work here: what it is, how it is laid out, \
the commands that build, test and check it, and the conventions that its code follows. Keep it under a page. If there \
is one already, improve it."""

DIFF = "git --no-pager diff HEAD && git ls-files --others --exclude-standard | sed 's/^/new file: /'"


def status_of(session: Session) -> str:
    """Return which session it is, its rights, and what it used."""
    settings, spent = session.settings, session.spent
    cost = "" if session.cost is None else f", cost {money(session.cost)}"
    return (
        f"session   {session.id}\nmodel     {session.model_name}\ndirectory {settings.cwd}\n"
        f"sandbox   {settings.sandbox_policy.__struct_config__.tag}\napproval  {settings.approval_policy}\n"
        f"tokens    {spent.input_tokens:,} in ({spent.cached_input_tokens:,} cached), {spent.output_tokens:,} out{cost}"
    )


def servers_of(settings: Settings, states: Mapping[str, str]) -> str:
    """Return the MCP servers with what is known of them."""
    lines = [f"{name}: {states.get(name, 'not started')}" for name in settings.mcp_servers]
    return "\n".join(lines) or "there are no MCP servers; `ferrule mcp add` adds one"


def tools_of(session: Session) -> str:
    """Return the names of the model's tools."""
    names = sorted(f"{space}.{name}" if space else name for space, name in session.toolset.current()[1])
    return "\n".join(names) or "there are no tools"


def skills_of(settings: Settings) -> str:
    """Return the skills that the model is told of."""
    return (
        "\n".join(f"{skill.name}: {skill.description}" for skill in installed(settings).used) or "there are no skills"
    )


def agents_of(settings: Settings) -> str:
    """Return the kinds of sub-agents."""
    lines = [f"{name}: {role.description}".rstrip(": ") for name, role in settings.agents.items()]
    return "\n".join(lines) or "no kinds of sub-agents are configured ([agents.NAME])"


def memories_in(home: str) -> str:
    """Return what is remembered from earlier work."""
    return "\n".join(f"{one.id}: {one.summary}" for one in MemoryStore(home).all()) or "nothing is remembered"
