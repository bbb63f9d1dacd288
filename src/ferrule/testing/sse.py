"""Server-sent events as a list that a script can edit, and their bytes."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ferrule.testing.plain import JsonObject, json_text


class Event(msgspec.Struct, frozen=True):
    """One event of a stream.

    `kind` is the edits' selector: the `type` of a Responses event; on the chat wire `role`, `reasoning`, `content`,
    `refusal`, `tool_call`, `finish`, `usage`; `error` and `done` on both. `data` is the JSON payload, or the literal
    text of the payload. `named` events have an `event:` line.
    """

    kind: str
    data: JsonObject | str
    named: bool = False


DONE = Event("done", "[DONE]")

Edit = Callable[[Sequence[Event]], Iterable[Event]]


class Framing(msgspec.Struct, frozen=True):
    """The byte format of events; the default is OpenAI's.

    `newline` ends every line: LF, CRLF or CR. `space` follows the field's colon. `bom` starts the stream with a byte
    order mark. `last_blank=False` leaves out the empty line after the last event.
    """

    newline: str = "\n"
    space: bool = True
    bom: bool = False
    last_blank: bool = True

    def encode(self, events: Iterable[Event]) -> bytes:
        """Return the bytes of the whole stream."""
        colon = ": " if self.space else ":"
        end, blank = self.newline, self.newline * 2
        parts = ["\ufeff"] if self.bom else []
        for event in events:
            if event.named:
                parts.append(f"event{colon}{event.kind}{end}")
            data = event.data if isinstance(event.data, str) else json_text(event.data)
            parts.append(f"data{colon}{data}{blank}")
        text = "".join(parts)
        return (text if self.last_blank else text.removesuffix(end)).encode()


OPENAI_FRAMING = Framing()
