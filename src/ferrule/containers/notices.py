"""What is told, once, in a command's stderr: that its container was started again, that commands used up something."""

from collections.abc import Sequence

import msgspec

from ferrule.process.capture import Captured
from ferrule.process.run import Completed

RESTARTED = (
    "the container was started again: its files are as they were, but programs that ran in it and what they had in "
    "memory are gone"
)
EXCEEDED = {
    "memory": "a program was ended because the container's memory ({:.3g} GiB) was used up",
    "disk": "commands were ended because the container's files take more than {:.3g} GiB or a million entries: remove "
    "some",
}


def with_notices(done: Completed, notices: Sequence[str]) -> Completed:
    """Return a completed command with notices before its stderr."""
    lines = "".join(f"[{notice}]\n" for notice in notices).encode()

    def told(output: Captured) -> Captured:
        return msgspec.structs.replace(output, head=lines + output.head)

    return msgspec.structs.replace(done, stderr=told(done.stderr), output=told(done.output))
