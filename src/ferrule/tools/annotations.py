"""Hints about a tool's behaviour, as the Model Context Protocol defines them."""

import msgspec


class ToolAnnotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """Behavioural hints. Defaults are the protocol's: a tool without hints may change and destroy things.

    `readOnlyHint`: it changes nothing. `destructiveHint`: it may delete or overwrite. `idempotentHint`: calling it
    again changes nothing more. `openWorldHint`: it reaches beyond this machine's own state. Where `destructiveHint` is
    None nothing is said: the protocol takes that for true.
    """

    title: str | None = None
    readOnlyHint: bool = False
    destructiveHint: bool | None = None
    idempotentHint: bool = False
    openWorldHint: bool = True
