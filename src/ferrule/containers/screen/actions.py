"""What is done on a screen, as `computer_call` of the Responses API spells it.

Source: `ComputerAction` of the `openai` package.
"""

from typing import Literal

import msgspec

from ferrule.containers.screen.errors import BadAction

Button = Literal["left", "right", "wheel", "back", "forward"]
Coordinate = int | float
"""Pixels from the left or the top edge."""


class Point(msgspec.Struct, frozen=True):
    """A place on the screen."""

    x: Coordinate
    y: Coordinate


class _Action(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """`keys` are held down meanwhile."""


class Click(_Action, frozen=True, tag="click"):
    """Press and release a button."""

    x: Coordinate
    y: Coordinate
    button: Button = "left"
    keys: tuple[str, ...] | None = None


class DoubleClick(_Action, frozen=True, tag="double_click"):
    """Click twice."""

    x: Coordinate
    y: Coordinate
    keys: tuple[str, ...] | None = None


class Drag(_Action, frozen=True, tag="drag"):
    """Press the left button at the first place, move along the others, release it at the last one."""

    path: tuple[Point, ...]
    keys: tuple[str, ...] | None = None


class Move(_Action, frozen=True, tag="move"):
    """Move the pointer."""

    x: Coordinate
    y: Coordinate
    keys: tuple[str, ...] | None = None


class Scroll(_Action, frozen=True, tag="scroll"):
    """Turn the wheel over a place; positive distances lead right and down, in pixels."""

    x: Coordinate
    y: Coordinate
    scroll_x: Coordinate = 0
    scroll_y: Coordinate = 0
    keys: tuple[str, ...] | None = None


class Type(_Action, frozen=True, tag="type"):
    """Write a text where the focus is."""

    text: str


class Keypress(_Action, frozen=True, tag="keypress"):
    """Press keys together, and release them."""

    keys: tuple[str, ...]


class Wait(_Action, frozen=True, tag="wait"):
    """Wait for what the page does by itself."""


class Screenshot(_Action, frozen=True, tag="screenshot"):
    """Do nothing but look."""


ScreenAction = Click | DoubleClick | Drag | Move | Scroll | Type | Keypress | Wait | Screenshot
NAMES = "click, double_click, drag, move, scroll, type, keypress, wait, screenshot"


def read_action(given: object) -> ScreenAction:
    """Read an action from the values of its JSON. Raises `BadAction`."""
    try:
        action: ScreenAction = msgspec.convert(given, ScreenAction)
    except msgspec.ValidationError as error:
        raise BadAction(f"This is no action: {error}. Actions are {NAMES}.") from error
    return action
