"""Why a file is not read."""


class RefusedError(Exception):
    """A file that is not read: `code` as the Responses API has it, and a sentence for the client."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def unsupported(sentence: str) -> RefusedError:
    """Return the refusal of a file of another kind."""
    return RefusedError("unsupported_file", sentence)


def invalid(sentence: str) -> RefusedError:
    """Return the refusal of a file that is damaged, or too much."""
    return RefusedError("invalid_file", sentence)
