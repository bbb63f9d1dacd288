"""Server-sent events: bytes in, payloads out. Pure, and the same for every chunking.

Source: the event stream format of the HTML standard. One rule is ours: an event that the stream ends without a blank
line is given out by `flush`, because servers leave the last blank line out; whoever reads it judges if it is whole.
So are errors that are not framed as the standard says: what a server wants to tell must not be lost.
"""

from collections.abc import Sequence

import msgspec

from ferrule.model.stream import ModelError

MAX_EVENT_BYTES = 64 * 2**20
"""Longest event kept in memory: a generated image in base64 fits, an endless line does not."""

_BOM = b"\xef\xbb\xbf"


class SseDecoder:
    """A stream decoder. Of a good event only `data` is read: every API that we use repeats the name inside it."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._at_start = True
        self._ended_with_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that this chunk completes.

        Raises `ModelError` if one event grows beyond `MAX_EVENT_BYTES`.
        """
        if self._ended_with_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._ended_with_cr = False
        if not chunk:
            return []
        self._ended_with_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        seen = len(self._rest)
        self._rest += chunk
        end = self._rest.rfind(b"\n\n", max(seen - 1, 0))
        if end < 0:
            if len(self._rest) > MAX_EVENT_BYTES:
                raise ModelError(f"The server sent an event longer than {MAX_EVENT_BYTES // 2**20} MiB.")
            return []
        complete = bytes(self._rest[:end])
        del self._rest[: end + 2]
        return self._events(complete)

    def flush(self) -> list[bytes]:
        """Return the data of the last event, if the stream ended inside it."""
        rest, self._rest = bytes(self._rest), bytearray()
        return self._events(rest)

    def _events(self, text: bytes) -> list[bytes]:
        if self._at_start:
            self._at_start = False
            text = text.removeprefix(_BOM)
        return [data for block in text.split(b"\n\n") for data in _data(block) if data]


_STRAY = b" \t\0" + _BOM
"""Meaningless bytes before a field's name: indents, and the mark of a stream that was appended to another."""
_NAMED = (b"event: response.", b"event: content_block_", b"event: message_")
_FIELDS = frozenset({b"", b"data", b"event", b"id", b"retry"})


def _data(block: bytes) -> Sequence[bytes]:
    """Return the data of one event, preceded by unframed content: an error as a field, a bare body, bare words."""
    head, _, rest = block.partition(b"\n")
    if not rest and head.startswith(b"data: "):
        return (head[6:],)
    if rest.startswith(b"data: ") and head.startswith(_NAMED) and head[7:] in rest and b"\n" not in rest:
        return (rest[6:],)  # the usual forms of the wires, which the rest reads alike
    values: list[bytes] = []
    loose: list[bytes] = []
    name = b""
    is_framed = False
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        field = field.strip(_STRAY).lower()
        is_framed = is_framed or (bool(line) and field in _FIELDS)
        if field == b"data":
            values.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.strip()
        elif field == b"error" and not loose:
            loose.append(_as_error(value.strip()))
        elif loose or line.startswith(b"{"):
            loose.append(line)
    bare = block.strip() and not is_framed and not loose
    return [block] if bare else [*_payloads(loose), *(_named(name, data) for data in _payloads(values))]


def _payloads(lines: Sequence[bytes]) -> Sequence[bytes]:
    """Join the lines of one payload. Lines that are one object each are separate events that lack their blank line."""
    *first, last = [line for line in lines if line.strip()] or (b"",)
    whole = all(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in first)
    if first and whole and last.startswith((b"{", b"[DONE]")):
        return [*first, last]
    return [b"\n".join(lines)]


def _named(name: bytes, data: bytes) -> bytes:
    """Return the data with the name that only the `event` field contains."""
    if name == b"error" and data.strip() and not data.lstrip().startswith(b"{"):
        return _as_error(data)
    if name.startswith(b"response.") and name not in data and data.startswith(b"{") and _is_untyped(data):
        rest = data[1:].lstrip()
        return b'{"type":"%b"%b%b' % (name, b"" if rest == b"}" else b",", rest)
    return data


class _Typed(msgspec.Struct):
    type: msgspec.Raw = msgspec.Raw()


_typed_decoder = msgspec.json.Decoder(_Typed)


def _is_untyped(data: bytes) -> bool:
    try:
        return not bytes(_typed_decoder.decode(data).type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _as_error(words: bytes) -> bytes:
    """Convert text, or an object, to a body that reports an error."""
    if words.startswith(b"{"):
        return b'{"error":%b}' % words
    return msgspec.json.encode({"error": {"message": words.decode(errors="replace")}})
