"""The errors of the path of a tool call. Two classes decide what happens: the turn goes on, or it ends."""


class FerruleError(Exception):
    """Base of every error that this package raises on purpose."""


class FunctionCallError(FerruleError):
    """A tool call could not be answered with a result."""


class RespondToModel(FunctionCallError):
    """The model made a mistake or the world refused; the text is the call's output and the turn goes on."""


class UnknownTool(RespondToModel):
    """A tool called another one by a name that nothing has."""


class Fatal(FunctionCallError):
    """The runtime broke its own contract; the turn ends with this error."""


class UsageError(FerruleError):
    """Wrong usage or configuration: one sentence for the user that says what to do next (exit code 2)."""
