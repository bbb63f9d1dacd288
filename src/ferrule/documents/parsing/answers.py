"""The process: it answers until the host closes its end, one document after the other.

It speaks as a kernel does (`ferrule.process.kernel`). A cell's code is a JSON object: `{"more"}` brings a piece of the
document (base64), `{"kind", "name"}` reads what came. `kind` is `html` or `pdf` for a page, whose address is its name,
and `file`. The output is a JSON object of `title` and `text`, or of `code` and `refused`, or of `missing`.
"""

import base64
import ctypes
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from .files import read_file
from .office import ZIP
from .pages import MAX_TEXT, read_html, read_pdf
from .refusal import RefusedError

MEMORY = 1 << 30
"""Bytes that the process may write to: the largest pages need a tenth."""


ASKED, ANSWERS = 3, 4
"""The descriptors of a kernel."""
PR_SET_DUMPABLE = 4
PARSERS = {"html": ("lxml.html", "trafilatura"), "pdf": ("pypdf",)}
"""What reads pages; loaded once, before any of them."""


class GaveUpError(Exception):
    """A parser raised; `name` says what."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Reader:
    """Holds what came of a document."""

    def __init__(self) -> None:
        self._data = bytearray()

    def answer(self, asked: "dict[str, str]") -> "dict[str, str]":
        """Take a piece, or read what came. A module that is missing is named as `missing`."""
        if "more" in asked:
            self._data += base64.b64decode(asked["more"])
            return {}
        data, self._data = bytes(self._data), bytearray()
        kind, name = asked["kind"], asked["name"]
        if kind == "file" and data[:1024].lstrip().startswith(b"%PDF-"):
            parsers = PARSERS["pdf"]
        elif kind == "file" and not data.startswith(ZIP):
            return _answer(kind, name, data)  # text is decoded, which leads nobody astray
        else:
            parsers = PARSERS.get(kind, ())
        for module in parsers:
            with suppress(ModuleNotFoundError):
                import_module(module)
        return apart(lambda: _answer(kind, name, data))

    def forget(self) -> None:
        """Let go of a document that could not be read."""
        self._data = bytearray()


def apart(read: "Callable[[], dict[str, str]]") -> "dict[str, str]":
    """Read a document in a process that ends with it: one that leads a parser astray meets no other. Raises
    `GaveUpError`."""
    if not hasattr(os, "fork"):
        return read()
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        os.closerange(ASKED, ANSWERS + 1)  # what the host asks next is not for it
        _tell(read, target)
    os.close(target)
    with os.fdopen(source, "rb") as told:
        said = told.read()
    os.waitpid(child, 0)
    if not said:
        raise GaveUpError(MemoryError.__name__)  # it was ended
    answer: dict[str, str] = json.loads(said)
    if "raised" in answer:
        raise GaveUpError(answer["raised"])
    return answer


def _tell(read: "Callable[[], dict[str, str]]", target: int) -> None:
    """Write what was read, and end this process."""
    try:
        try:
            answer = read()
        except Exception as error:  # noqa: BLE001 - parsers of hostile files raise anything
            answer = {"raised": type(error).__name__}
        with os.fdopen(target, "wb") as telling:
            telling.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
    finally:
        os._exit(0)


def _answer(kind: str, name: str, data: bytes) -> "dict[str, str]":
    try:
        title, text = _read(kind, name, data)
    except ModuleNotFoundError as error:
        return {"missing": error.name or ""}
    except RefusedError as error:
        return {"code": error.code, "refused": str(error)}
    return {"title": title[:1000], "text": text}


def _read(kind: str, name: str, data: bytes) -> "tuple[str, str]":
    if kind == "html":
        return read_html(data, name)
    if kind == "pdf":
        title, text = read_pdf(data)
        return title, text[:MAX_TEXT]
    return "", read_file(data, name)


def limit_resources() -> None:
    """Let this process write neither much memory nor any file."""
    try:
        import resource
    except ImportError:  # only on Windows
        return
    for kind, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def hide_memory() -> None:
    """Let no other process of this user look into this one, which gets all documents."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Answer until the host closes its end."""
    limit_resources()
    hide_memory()
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(2000)
    reader = Reader()
    with os.fdopen(ASKED, "rb") as asked, os.fdopen(ANSWERS, "wb") as answers:
        for line in asked:
            message = json.loads(line)
            result = {"type": "exec_result", "id": message["id"], "ok": True}
            if message["code"]:
                try:
                    answer = reader.answer(json.loads(message["code"]))
                    result["output"] = json.dumps(answer, ensure_ascii=False)
                except GaveUpError as error:
                    result |= {"ok": False, "error": error.name}
                except Exception as error:  # noqa: BLE001 - a text may need more memory than there is
                    reader.forget()
                    result |= {"ok": False, "error": type(error).__name__}
            answers.write(json.dumps(result, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            answers.flush()
