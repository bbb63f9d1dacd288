"""Route a patch that was written as a shell command to the patch tool instead of a process."""

import os

import msgspec

from ferrule.patch.invocation import BarePatchError, Invocation, find_patch
from ferrule.protocol.errors import RespondToModel, UnknownTool
from ferrule.protocol.payload import FunctionPayload, ToolOutput
from ferrule.tools.context import ToolContext, ToolInvocation

PATCH_TOOL = "apply_patch"


def intercepted(argv: tuple[str, ...], cwd: str) -> Invocation | None:
    """Return the patch that `argv` would apply in `cwd`, with an absolute `workdir`; None to run it as it is.

    Raises `RespondToModel` for a patch that names no program.
    """
    try:
        found = find_patch(argv)
    except BarePatchError as error:
        raise RespondToModel(str(error)) from error
    return None if found is None else Invocation(found.text, os.path.normpath(os.path.join(cwd, found.workdir or "")))


async def apply_intercepted(ctx: ToolContext, argv: tuple[str, ...], cwd: str) -> ToolOutput | None:
    """Call the patch tool if `argv` is a patch, and return its answer; None if it is not, or without a patch tool."""
    found = intercepted(argv, cwd)
    if found is None:
        return None
    directory = found.workdir or cwd
    there = msgspec.structs.replace(ctx, cwd=directory, files=ctx.files.moved(directory))
    arguments = msgspec.json.encode({"input": found.text}).decode()
    try:
        invocation = ToolInvocation(ctx.call_id, PATCH_TOOL, FunctionPayload(arguments), turn_id=ctx.turn_id)
        return await there.call(invocation)
    except UnknownTool:
        return None
