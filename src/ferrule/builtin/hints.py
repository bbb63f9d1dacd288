"""The annotations that several built-in tools share."""

from ferrule.tools.annotations import ToolAnnotations

LOOKS = ToolAnnotations(readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=False)
"""A tool that changes nothing and reaches nothing beyond this machine."""
EDITS = ToolAnnotations(readOnlyHint=False, destructiveHint=True, idempotentHint=False, openWorldHint=False)
"""A tool that writes files."""
RUNS = ToolAnnotations(readOnlyHint=False, destructiveHint=True, idempotentHint=False, openWorldHint=True)
"""A tool that runs commands."""
KEEPS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=True, openWorldHint=False)
"""A tool that only writes down what it is told, in the session."""
