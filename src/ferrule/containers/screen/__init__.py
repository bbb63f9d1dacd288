"""A screen: a browser without a window in a container of its own, seen as pictures, used as by a hand. Usable alone."""

from ferrule.containers.screen.actions import ScreenAction, read_action
from ferrule.containers.screen.errors import BadAction, BadAddress, ScreenError
from ferrule.containers.screen.network import ScreenNetwork
from ferrule.containers.screen.screen import Screen

__all__ = [
    "BadAction",
    "BadAddress",
    "Screen",
    "ScreenAction",
    "ScreenError",
    "ScreenNetwork",
    "read_action",
]
