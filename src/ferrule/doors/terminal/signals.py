"""What the terminal itself can tell the user: the window's title, and a notification.

Source: xterm's control sequences (OSC 2, XTWINOPS 22 and 23); OSC 9 as iTerm2, WezTerm, Ghostty and kitty take it.
"""

import os
from collections.abc import Mapping

from ferrule.rendering.safe import plain

SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
BELL = "\a"
NOTIFYING = frozenset({"iTerm.app", "WezTerm", "ghostty"})
LONGEST = 120


def title(text: str) -> str:
    """Return the sequence that sets the window's title."""
    return f"\x1b]2;{plain(text)[:LONGEST]}\a"


def notification(text: str, env: Mapping[str, str] = os.environ) -> str:
    """Return the sequence that notifies the user, where the terminal is known to have one; else the bell."""
    if env.get("TERM_PROGRAM") in NOTIFYING or env.get("TERM") == "xterm-kitty":
        return f"\x1b]9;{plain(text)[:LONGEST]}\a"
    return BELL
