"""Actions as commands of the DevTools protocol. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from ferrule.containers.screen.actions import Click, DoubleClick, Drag, Keypress, Move, Point, Scroll, Type
from ferrule.containers.screen.keys import SHIFT, Key, read_keys, typed
from ferrule.protocol.json_text import JsonObject, encodable

Command = tuple[str, JsonObject]
MOUSE, KEY, TEXT = "Input.dispatchMouseEvent", "Input.dispatchKeyEvent", "Input.insertText"
BUTTONS: Final = {"left": ("left", 1), "right": ("right", 2), "wheel": ("middle", 4)}
"""Names and bits in the protocol. The other buttons lead through the history: see `Screen`."""
MAX_TYPED = 500
"""Characters that are written key by key, which pages can listen to; a longer text comes at once, as if pasted."""
STEP_PIXELS, MAX_STEPS = 25, 20
"""Between two moves of a drag, and moves between two of its places: pages follow a pointer that does not jump."""


def clicking(action: Click | DoubleClick) -> Iterator[Command]:
    """Yield the commands of a click."""
    name, bit = BUTTONS[action.button if isinstance(action, Click) else "left"]
    held = read_keys(action.keys or ())
    at: JsonObject = {"x": action.x, "y": action.y, "modifiers": modifiers(held)}
    yield from pressing(held)
    yield MOUSE, {"type": "mouseMoved", **at}
    for count in range(1, 3 if isinstance(action, DoubleClick) else 2):
        yield MOUSE, {"type": "mousePressed", "button": name, "buttons": bit, "clickCount": count, **at}
        yield MOUSE, {"type": "mouseReleased", "button": name, "clickCount": count, **at}
    yield from releasing(held)


def moving(action: Move) -> Iterator[Command]:
    """Yield the commands that move the pointer."""
    held = read_keys(action.keys or ())
    yield from pressing(held)
    yield MOUSE, {"type": "mouseMoved", "x": action.x, "y": action.y, "modifiers": modifiers(held)}
    yield from releasing(held)


def scrolling(action: Scroll) -> Iterator[Command]:
    """Yield the commands that turn the wheel."""
    held = read_keys(action.keys or ())
    at: JsonObject = {"x": action.x, "y": action.y, "modifiers": modifiers(held)}
    yield from pressing(held)
    yield MOUSE, {"type": "mouseMoved", **at}
    yield MOUSE, {"type": "mouseWheel", "deltaX": action.scroll_x, "deltaY": action.scroll_y, **at}
    yield from releasing(held)


def steps(path: Sequence[Point]) -> Iterator[Point]:
    """Yield the places that a drag goes through after the first."""
    for start, end in pairwise(path):
        far = max(abs(end.x - start.x), abs(end.y - start.y))
        count = min(max(round(far / STEP_PIXELS), 2), MAX_STEPS)
        for step in range(1, count + 1):
            part = step / count
            yield Point(start.x + (end.x - start.x) * part, start.y + (end.y - start.y) * part)


def drag_move(point: Point, held: Sequence[Key]) -> Command:
    """Return the command that moves the pointer with its left button down."""
    at: JsonObject = {"x": point.x, "y": point.y, "modifiers": modifiers(held)}
    return MOUSE, {"type": "mouseMoved", "button": "left", "buttons": 1, **at}


def drag_start(action: Drag, held: Sequence[Key]) -> Iterator[Command]:
    """Yield the commands that take hold of something."""
    first = action.path[0]
    at: JsonObject = {"x": first.x, "y": first.y, "modifiers": modifiers(held)}
    yield from pressing(held)
    yield MOUSE, {"type": "mouseMoved", **at}
    yield MOUSE, {"type": "mousePressed", "button": "left", "buttons": 1, "clickCount": 1, **at}


def drag_end(action: Drag, held: Sequence[Key]) -> Iterator[Command]:
    """Yield the commands that let go of it."""
    last = action.path[-1]
    at: JsonObject = {"x": last.x, "y": last.y, "modifiers": modifiers(held)}
    yield MOUSE, {"type": "mouseReleased", "button": "left", "clickCount": 1, **at}
    yield from releasing(held)


def typing(action: Type) -> Iterator[Command]:
    """Yield the commands that write a text."""
    text = encodable(action.text)
    if len(text) > MAX_TYPED:
        yield TEXT, {"text": text}
        return
    for character in text.replace("\r\n", "\n"):
        key = typed(character)
        if key is None:
            yield TEXT, {"text": character}
        else:
            shift = SHIFT if character == key.shifted != key.text else 0
            yield _down(key, shift)
            yield _up(key, 0)


def keypress(action: Keypress) -> Iterator[Command]:
    """Yield the commands that press keys together."""
    keys = read_keys(action.keys)
    yield from pressing(keys)
    yield from releasing(keys)


def pressing(keys: Iterable[Key]) -> Iterator[Command]:
    """Yield the commands that press keys, one after the other."""
    held = 0
    for key in keys:
        held |= key.modifier
        yield _down(key, held)


def releasing(keys: Sequence[Key]) -> Iterator[Command]:
    """Yield the commands that release keys, the last one first."""
    for index in range(len(keys) - 1, -1, -1):
        yield _up(keys[index], modifiers(keys[:index]))


def modifiers(held: Iterable[Key]) -> int:
    """Return the bits of the keys that are held."""
    bits = 0
    for key in held:
        bits |= key.modifier
    return bits


def _down(key: Key, held: int) -> Command:
    """Return the command that presses a key. With control, alt or meta held it writes nothing."""
    text = "" if held & ~SHIFT else key.shifted if held & SHIFT else key.text
    sent: JsonObject = {"type": "keyDown" if text else "rawKeyDown", **_named(key, held)}
    return KEY, {**sent, "text": text, "unmodifiedText": text} if text else sent


def _up(key: Key, held: int) -> Command:
    return KEY, {"type": "keyUp", **_named(key, held)}


def _named(key: Key, held: int) -> JsonObject:
    shown = key.shifted if held & SHIFT and len(key.shifted) == 1 and len(key.key) == 1 else key.key
    named: JsonObject = {"key": shown, "code": key.code, "windowsVirtualKeyCode": key.number, "modifiers": held}
    return named
