"""The model's name for a server's tool. Pure, and a function of the two raw names alone.

So a name is the same in every session and in any order of starts, and no tool can take another one's.
"""

import hashlib
import re

PREFIX = "mcp__"
"""No built-in tool's name begins like this: a server cannot shadow one."""
LONGEST_NAME = 64
"""Characters that providers accept."""
_HASH = 12
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


def qualified_name(server: str, tool: str) -> str:
    """Return `mcp__SERVER__TOOL`, with a hash of the raw names if the text alone is ambiguous: a character had to be
    replaced, it is too long, or `__` could divide it in two places."""
    joined = f"{server}__{tool}"
    plain = PREFIX + _FOREIGN.sub("_", joined)
    divides_once = len(re.findall("(?=__)", joined)) == 1
    if plain == PREFIX + joined and len(plain) <= LONGEST_NAME and divides_once:
        return plain
    digest = hashlib.sha1(f"{server}\0{tool}".encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return f"{plain[: LONGEST_NAME - _HASH - 1]}_{digest[:_HASH]}"


def slash_name(server: str, tool: str) -> str:
    """Return the second spelling that resolves to the same tool."""
    return f"{server}/{tool}"
