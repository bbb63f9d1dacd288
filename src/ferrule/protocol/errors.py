"""The errors of a tool call. Two classes decide what happens next: the turn continues, or it ends."""


class FerruleError(Exception):
    """Base of every error that this package raises deliberately."""


class FunctionCallError(FerruleError):
    """A tool call that produced no result."""


class RespondToModel(FunctionCallError):
    """The model made a mistake or the action was refused; the text is the call's output and the turn continues."""


class UnknownTool(RespondToModel):
    """A tool called another one by an unknown name."""


class Fatal(FunctionCallError):
    """The runtime broke its own contract; the turn ends with this error."""


class UsageError(FerruleError):
    """Wrong usage or configuration: one sentence that tells the user what to do next (exit code 2)."""
