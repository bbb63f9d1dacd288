"""Texts and annotations that several built-in tools share."""

from ferrule.tools.annotations import ToolAnnotations

LOOKS = ToolAnnotations(readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=False)
"""A tool that changes nothing and reaches nothing beyond this machine."""
EDITS = ToolAnnotations(readOnlyHint=False, destructiveHint=True, idempotentHint=False, openWorldHint=False)
"""A tool that writes files."""
RUNS = ToolAnnotations(readOnlyHint=False, destructiveHint=True, idempotentHint=False, openWorldHint=True)
"""A tool that runs commands."""
KEEPS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=True, openWorldHint=False)
"""A tool that only keeps notes in the session."""

EDITOR = """\
View, create and edit text files. `path` is absolute.
* `view` shows a file as `cat -n` does, or its lines `view_range`; a directory it shows two levels deep, without \
hidden items. Long output ends with `<response clipped>`.
* `create` writes `file_text` to a new file; it overwrites nothing.
* `str_replace` replaces `old_str` by `new_str`. `old_str` must match the file exactly, white space included, and \
occur once: give enough lines around the change."""
"""Describes the commands that both editors have."""
