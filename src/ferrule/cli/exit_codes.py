"""Exit codes of all commands."""

DONE = 0
FAILED = 1
"""The work failed."""
WRONG_USAGE = 2
"""Wrong usage or configuration."""
INTERRUPTED = 130
