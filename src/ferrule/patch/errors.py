"""The errors of a patch. Each text is written for a model."""

MAX_MESSAGE = 1450
"""Characters: enough for a path, a few lines and a cause; with the tool's prefix it stays below 1,500."""

ELLIPSIS = "…"


class PatchError(Exception):
    """A patch that cannot be parsed, matched or applied; nothing was changed. At most `MAX_MESSAGE` characters."""

    def __init__(self, message: str) -> None:
        super().__init__(clip(message, MAX_MESSAGE))

    @property
    def verification_text(self) -> str:
        """The same text as the tool words it, after `apply_patch verification failed: `."""
        return str(self)


class ParseError(PatchError):
    """The text is no V4A patch. `line` is 1-based from the begin marker, None if the error concerns the whole."""

    def __init__(self, detail: str, line: int | None = None, hint: str = "") -> None:
        self.detail = detail
        self.line = line
        self.hint = hint
        where = "Invalid patch: " if line is None else f"Invalid patch hunk on line {line}: "
        super().__init__(where + _joined(detail, hint))

    @property
    def verification_text(self) -> str:
        """See `PatchError.verification_text`."""
        where = "invalid patch: " if self.line is None else f"invalid hunk at line {self.line}, "
        return clip(where + _joined(self.detail, self.hint), MAX_MESSAGE)


class MatchError(PatchError):
    """The patch does not fit the files: a file is missing, is in the way, or does not hold the expected lines."""


class ApplyError(PatchError):
    """The plan could not be carried out. Changes already made are undone, unless the text says otherwise."""


def clip(text: str, limit: int) -> str:
    """Cut the text to `limit` characters, with an ellipsis at the end."""
    return text if len(text) <= limit else text[: limit - len(ELLIPSIS)] + ELLIPSIS


def _joined(detail: str, hint: str) -> str:
    return f"{clip(detail, MAX_MESSAGE // 2)}\n{hint}" if hint else detail
