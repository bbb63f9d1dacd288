"""The token that clients of a listening door must send."""

import os

from ferrule.protocol.errors import UsageError


def client_token(door: str, variable: str | None) -> str:
    """Take the token out of an environment variable: commands must not have it, since who has it can answer what the
    user is asked. Raises `UsageError`."""
    if variable is None:
        raise UsageError(
            f"{door} needs --token-env NAME: the environment variable that holds the token which clients must send"
        )
    token = os.environ.pop(variable, "").strip()
    if not token:
        raise UsageError(f"--token-env: the environment variable {variable} is not set, or empty")
    if not (token.isascii() and token.isprintable()):
        raise UsageError(f"--token-env: {variable} holds what no header can: use letters, digits and signs")
    return token
