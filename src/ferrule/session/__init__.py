"""The turn loop, and everything that lives as long as a conversation."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrule.session.opening import open_session as open  # noqa: A004 - the name that every door calls

__all__ = ["open"]


def __getattr__(name: str) -> object:
    if name == "open":
        from ferrule.session.opening import open_session

        return open_session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
