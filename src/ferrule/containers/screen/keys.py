"""Keys by name: as the API spells them (`CTRL`, `ARROWLEFT`, `A`), and as a keyboard of the United States has them.

Source of the numbers: `windowsVirtualKeyCode` of `Input.dispatchKeyEvent` in the DevTools protocol; of the names:
UI Events `key` and `code` (W3C).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ferrule.containers.screen.errors import BadAction

ALT, CONTROL, META, SHIFT = 1, 2, 4, 8
"""Bits of `modifiers`."""


class Key(msgspec.Struct, frozen=True):
    """One key: what it is called and where it is, what it writes, and what it writes with shift."""

    key: str
    code: str
    number: int
    text: str = ""
    shifted: str = ""
    modifier: int = 0


def _named(names: str, key: str, number: int, *, code: str = "", text: str = "", modifier: int = 0) -> dict[str, Key]:
    made = Key(key, code or key, number, text, text, modifier)
    return dict.fromkeys(names.split(), made)


NAMED: Final[Mapping[str, Key]] = {
    **_named("ctrl control cmd command", "Control", 17, code="ControlLeft", modifier=CONTROL),
    **_named("shift", "Shift", 16, code="ShiftLeft", modifier=SHIFT),
    **_named("alt option", "Alt", 18, code="AltLeft", modifier=ALT),
    **_named("meta super win windows", "Meta", 91, code="MetaLeft", modifier=META),
    **_named("enter return", "Enter", 13, text="\r"),
    **_named("tab", "Tab", 9),
    **_named("esc escape", "Escape", 27),
    **_named("backspace", "Backspace", 8),
    **_named("delete del", "Delete", 46),
    **_named("insert ins", "Insert", 45),
    **_named("space", " ", 32, code="Space", text=" "),
    **_named("arrowleft left", "ArrowLeft", 37),
    **_named("arrowup up", "ArrowUp", 38),
    **_named("arrowright right", "ArrowRight", 39),
    **_named("arrowdown down", "ArrowDown", 40),
    **_named("home", "Home", 36),
    **_named("end", "End", 35),
    **_named("pageup page_up pgup", "PageUp", 33),
    **_named("pagedown page_down pgdn", "PageDown", 34),
    **_named("capslock", "CapsLock", 20),
    **_named("contextmenu menu", "ContextMenu", 93),
    **{name: key for number in range(1, 13) for name, key in _named(f"f{number}", f"F{number}", 111 + number).items()},
}
"""`CMD` is the control key: who says it means the shortcut of another system."""


def _printing() -> dict[str, Key]:
    """Return the keys that write something, by both characters of each."""
    rows = [(letter, letter.upper(), f"Key{letter.upper()}", ord(letter.upper())) for letter in LETTERS]
    rows += [(digit, sign, f"Digit{digit}", ord(digit)) for digit, sign in zip("0123456789", ")!@#$%^&*(", strict=True)]
    rows += PUNCTUATION
    keys = [Key(plain, code, number, plain, shifted) for plain, shifted, code, number in rows]
    return {character: key for key in keys for character in (key.shifted, key.text)}


LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
PUNCTUATION: Final = [
    ("`", "~", "Backquote", 192), ("-", "_", "Minus", 189), ("=", "+", "Equal", 187), ("[", "{", "BracketLeft", 219),
    ("]", "}", "BracketRight", 221), ("\\", "|", "Backslash", 220), (";", ":", "Semicolon", 186),
    ("'", '"', "Quote", 222), (",", "<", "Comma", 188), (".", ">", "Period", 190), ("/", "?", "Slash", 191),
    (" ", " ", "Space", 32),
]  # fmt: skip
PRINTING: Final[Mapping[str, Key]] = _printing()
WRITTEN: Final[Mapping[str, Key]] = {"\n": NAMED["enter"], "\r": NAMED["enter"], "\t": NAMED["tab"]}


def read_keys(names: Iterable[str]) -> tuple[Key, ...]:
    """Return the keys of these names, in any case; `CTRL+A` stands for both. Raises `BadAction`."""
    return tuple(_read_key(part) for name in names for part in _parts(name))


def _parts(name: str) -> list[str]:
    if len(name) == 1 or "+" not in name:
        return [name]
    *front, last = name.removesuffix("++").split("+") if name.endswith("++") else [*name.split("+"), ""]
    return [*front, last, "+"] if name.endswith("++") else [part for part in (*front, last) if part]


def _read_key(name: str) -> Key:
    found = PRINTING.get(name) or WRITTEN.get(name) or NAMED.get(name.strip().lower())
    if found is None:
        raise BadAction(
            f"There is no key {name[:50]!r}: keys are single characters, and names such as CTRL, SHIFT, ALT, ENTER, "
            "TAB, ESC, BACKSPACE, DELETE, SPACE, HOME, END, PAGEUP, PAGEDOWN, ARROWLEFT, F5."
        )
    return found


def typed(character: str) -> Key | None:
    """Return the key that writes a character; None if the keyboard has none."""
    return WRITTEN.get(character) or PRINTING.get(character)
