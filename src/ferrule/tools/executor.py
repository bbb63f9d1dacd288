"""The business logic of a tool: `__call__(action)` or `__call__(action, ctx)`, plain or async."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ferrule.tools.action import Action, Observation

A = TypeVar("A", bound="Action")
O = TypeVar("O", bound="Observation")  # noqa: E741 - as in Observation


class ToolExecutor(ABC, Generic[A, O]):
    """An executor of validated actions. `close` is called once, when the session ends.

    A plain `def` runs on a separate thread, unless the class sets `blocking = False`. An executor that changes things
    takes the context and acts through `ctx.run`; one that takes no context and is not annotated as read-only is
    wrapped in one `ctx.run` as a whole.
    """

    blocking: bool = True
    asks_first: bool = False
    """It only looks before its first `ctx.run`, in each call: so what a call asks can be told without running it."""

    @abstractmethod
    def __call__(self, action: A, *args: Any) -> Any:
        """Run `action`; the second argument, if declared, is the `ToolContext`. Returns the observation."""

    def close(self) -> Any:
        """Release the executor's resources. May be async."""
