"""How answers ended that are not whole: paused by the server, or cut off at a limit."""

from ferrule.model.stream import MAX_PAUSES, Completed, ModelError


class Endings:
    """The endings of a turn's answers. `incomplete` is why the last one is not whole, None if it is."""

    def __init__(self, retries: int) -> None:
        self._retries = self._left = retries
        self._pauses = 0
        self._cut_call = ""
        self.incomplete: str | None = None

    def note(self, event: Completed) -> None:
        """Take how an answer ended."""
        self.incomplete, self._cut_call = event.incomplete, event.cut_call
        self._pauses = self._pauses + 1 if event.end_turn is False else 0
        if not self._cut_call:
            self._left = self._retries

    def correction(self) -> str | None:
        """Return what the model is told of a call that was cut off, None if there is none. Raises `ModelError` if that
        happened too often, or the server pauses without end."""
        if self._pauses > MAX_PAUSES:
            raise ModelError(
                f"The server paused its answer {self._pauses} times without an end: ask for less at once, "
                "or leave out the tools that it runs itself."
            )
        if not self._cut_call:
            return None
        if not self._left:
            raise ModelError(
                f"The answer reached its limit of output tokens within a call of {self._cut_call}, asked "
                f"{self._retries + 1} times (unusable_answer_retries): set a higher model_max_output_tokens, "
                "or ask for smaller steps."
            )
        self._left -= 1
        return (
            f"Your call of {self._cut_call} was cut off at the limit of output tokens, and was not run. "
            "Make it again, smaller: in several calls if need be."
        )
