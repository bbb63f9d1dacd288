"""Where the user writes."""

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from textual import events, work
from textual.message import Message
from textual.widgets import TextArea

from ferrule.doors.terminal.completion import Files, command_word, commands_for, file_word
from ferrule.doors.terminal.history import PromptHistory
from ferrule.doors.terminal.keyboard import LONGEST_PASTE
from ferrule.doors.terminal.suggestions import Suggestions
from ferrule.protocol.content import ContentPart, InputText
from ferrule.protocol.errors import UsageError
from ferrule.rendering.safe import writable

NEW_LINE_KEYS = frozenset({"shift+enter", "ctrl+j", "alt+enter"})
"""Keys that break the line; terminals differ in which of them they can send."""
LONGEST_IMAGE = 20 * 1024 * 1024
"""Bytes of an image that a prompt takes; servers refuse larger ones."""
LONG_PASTE = 1000
"""Characters from which on a pasted text stands in the composer as a chip."""
LONG_PASTE_LINES = 8
LONGEST_WRITTEN = 32 * 1024
"""Characters of a text that comes from elsewhere, from an editor or an earlier message, and can be changed key by key;
a longer one stands as a chip, too."""
_CHIP = re.compile(r"\[(?:Pasted text|Image) #\d+[^\]\n]*\]")


class Helper(msgspec.Struct, frozen=True):
    """What the composer asks while somebody writes."""

    past: "PromptHistory"
    files: "Files"
    commands: Callable[[], Sequence[tuple[str, str]]]
    clipboard: Callable[[], Awaitable[bytes]]
    """Returns the image on the clipboard. Raises `UsageError`."""
    tell: Callable[[str], None]


class Composer(TextArea):
    """Several lines of text; Enter sends them. A long paste and an image stand in it as chips."""

    DEFAULT_CSS = """
    Composer {
        height: auto;
        max-height: 8;
        width: 1fr;
        border: none;
        padding: 0;
        color: ansi_default;
        background: transparent;
    }
    Composer:focus { border: none; }
    Composer .text-area--cursor-line { background: transparent; }
    Composer .text-area--placeholder { color: ansi_default; text-style: dim; }
    Composer .text-area--cursor, Composer .text-area--selection {
        color: ansi_default !important;
        background: ansi_default !important;
        text-style: reverse !important;
    }
    .themed Composer { color: $foreground; }
    .themed Composer .text-area--cursor, .themed Composer .text-area--selection {
        color: $background !important;
        background: $foreground !important;
        text-style: none !important;
    }
    .themed Composer .text-area--placeholder { color: $foreground; }
    """

    class Submitted(Message):
        """The user has sent `text`, which `parts` are with what stands behind its chips."""

        def __init__(self, text: str, parts: tuple[ContentPart, ...]) -> None:
            super().__init__()
            self.text, self.parts = text, parts

    def __init__(self, placeholder: str, suggestions: Suggestions) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, placeholder=placeholder)
        self._suggestions = suggestions
        self.helper: Helper | None = None
        """Who knows the files, the commands and the earlier messages; None until the session opens."""
        self._pasted: dict[str, ContentPart] = {}

    def load_text(self, text: str) -> None:
        """Put another text in place of what is written; it may come from a file."""
        super().load_text(writable(text))

    def write(self, text: str) -> None:
        """Put a text in place of what is written, the cursor behind it; a very long one as a chip."""
        if len(text) > LONGEST_WRITTEN:
            self.load_text("")
            self._insert_pasted(writable(text))
        else:
            self.load_text(text)
            self.move_cursor(self.document.end)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave Ctrl-D to the application where there is nothing to delete: it quits."""
        return (action != "delete_right" or bool(self.text)) and super().check_action(action, parameters)

    async def _on_key(self, event: events.Key) -> None:
        if self._on_suggestion_key(event.key) or self._on_own_key(event.key):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    def _on_own_key(self, key: str) -> bool:
        if key == "enter":
            self.submit()
        elif key in NEW_LINE_KEYS:
            self.insert("\n")
        elif key == "ctrl+v":
            self._paste_image()
        elif key == "up" and self.cursor_location[0] == 0:
            self._recall(self.helper.past.earlier(self.text) if self.helper else None)
        elif key == "down" and self.cursor_location[0] == self.document.line_count - 1:
            self._recall(self.helper.past.later() if self.helper else None)
        else:
            return False
        return True

    def _recall(self, text: str | None) -> None:
        if text is not None:
            self.write(text)
            self._suggestions.show(())

    def _on_suggestion_key(self, key: str) -> bool:
        if key in ("enter", "tab") and file_word(self._before) is None:
            self.on_text_area_changed()  # what is suggested may be for fewer letters: keys can come faster than that
        chosen = self._suggestions.chosen
        if chosen is None:
            return False
        match key:
            case "up" | "down":
                self._suggestions.move(-1 if key == "up" else 1)
            case "tab":
                self._complete(chosen.text)
            case "enter" if self.text != chosen.text:
                self._complete(chosen.text)
                if command_word(self.text.strip()) is not None:
                    self.submit()
            case "escape":
                self._suggestions.show(())
            case _:
                return False
        return True

    def _complete(self, text: str) -> None:
        """Put a suggestion in the place of what was written of it."""
        if command_word(self.text) is not None:
            self.load_text(f"{text} ")
            self.move_cursor(self.document.end)
        else:
            row, column = self.cursor_location
            word = file_word(self._before) or ""
            quoted = f'"{text}"' if " " in text else text
            self.replace(f"{quoted} ", (row, column - len(word) - 1), (row, column))
        self._suggestions.show(())

    @property
    def _before(self) -> str:
        """What stands in the line before the cursor."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def on_text_area_changed(self) -> None:
        """Suggest what may be meant."""
        word = command_word(self.text)
        if self.helper is None:
            return
        if word is not None:
            self._suggestions.show(commands_for(word, self.helper.commands()))
        elif (query := file_word(self._before)) is not None:
            self._suggest_files(query)
        else:
            self._suggestions.show(())

    @work(exclusive=True, group="files")
    async def _suggest_files(self, query: str) -> None:
        found = () if self.helper is None else await self.helper.files.matching(query)
        if file_word(self._before) == query:
            self._suggestions.show(found)

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        if len(event.text) > LONGEST_PASTE:
            most = LONGEST_PASTE // 1024**2
            self._tell(f"more than {most} MB cannot be pasted: put it into a file, and name that by @")
            return
        text = writable(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        image = _image_at(text.strip())
        if not event.text:  # what terminals send where the clipboard holds no text
            self._paste_image()
        elif image is not None:
            self._insert_image(*image)
        elif len(text) > LONG_PASTE or text.count("\n") >= LONG_PASTE_LINES:
            self._insert_pasted(text)
        else:
            self.insert(text)

    def _insert_pasted(self, text: str) -> None:
        lines = text.count("\n") + 1
        count = f"{lines} line{'' if lines == 1 else 's'}"
        self.insert(self._chip(f"Pasted text #{len(self._pasted) + 1}, {count}", InputText(text)))

    @work(exclusive=True, group="clipboard")
    async def _paste_image(self) -> None:
        """Take the image on the clipboard; without one, what was cut or copied here."""
        from ferrule.session.images import image_of

        if self.helper is None:
            return
        try:
            data = await self.helper.clipboard()
            self._insert_image("from the clipboard", image_of(data, "what is on the clipboard"))
        except UsageError as error:
            if self.app.clipboard:
                self.action_paste()
            else:
                self.helper.tell(str(error))

    def _tell(self, text: str) -> None:
        if self.helper is not None:
            self.helper.tell(text)

    def _insert_image(self, name: str, part: ContentPart) -> None:
        self.insert(self._chip(f"Image #{len(self._pasted) + 1} {name}", part))

    def _chip(self, name: str, part: ContentPart) -> str:
        chip = f"[{name.replace(']', ')')}]"
        self._pasted[chip] = part
        return chip

    def submit(self) -> None:
        """Send what is written, if it is more than blanks."""
        text = self.text.strip()
        if text:
            parts = self._parts(text)
            if self.helper is not None:
                self.helper.past.add(text)
            self._pasted.clear()
            self.clear()
            self._suggestions.show(())
            self.post_message(self.Submitted(text, parts))

    def _parts(self, text: str) -> tuple[ContentPart, ...]:
        """Return the text with what was pasted in place of its chips; images before it."""
        images = [part for chip, part in self._pasted.items() if chip in text and not isinstance(part, InputText)]

        def whole(chip: re.Match[str]) -> str:
            part = self._pasted.get(chip[0])
            return part.text if isinstance(part, InputText) else chip[0]

        return (*images, InputText(_CHIP.sub(whole, text)))


def _image_at(text: str) -> tuple[str, ContentPart] | None:
    """Return the name and the image whose path was pasted, as terminals do with a file that is dropped; None for
    another text."""
    from ferrule.images import read_header
    from ferrule.session.images import image_of

    path = text.strip("'\"").replace("\\ ", " ")
    if "\n" in path or not path.startswith(("/", "~", "./")):
        return None
    try:
        file = Path(path).expanduser()
        if not file.is_file() or file.stat().st_size > LONGEST_IMAGE:
            return None
        data = file.read_bytes()
        return (file.name, image_of(data, path)) if read_header(data) is not None else None
    except (OSError, ValueError, RuntimeError, UsageError):  # RuntimeError: a `~` before no user
        return None
