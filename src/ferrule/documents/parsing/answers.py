"""The process: it answers until the host closes its end, one document after the other.

It speaks as a kernel does (`ferrule.process.kernel`). A cell's code is a JSON object: `{"more"}` brings a piece of the
document (base64), `{"kind", "name"}` reads what came. `kind` is `html` or `pdf` for a page, whose address is its name,
and `file`. The output is a JSON object of `title` and `text`, or of `code` and `refused`, or of `missing`.
"""

import base64
import json
import logging
import os
import sys

from .files import read_file
from .pages import MAX_TEXT, read_html, read_pdf
from .refusal import RefusedError

MEMORY = 1 << 30
"""Bytes that the process may write to: the largest pages need a tenth."""


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
        try:
            title, text = _read(asked["kind"], asked["name"], data)
        except ModuleNotFoundError as error:
            return {"missing": error.name or ""}
        except RefusedError as error:
            return {"code": error.code, "refused": str(error)}
        return {"title": title[:1000], "text": text}

    def forget(self) -> None:
        """Let go of a document that could not be read."""
        self._data = bytearray()


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


def main() -> None:
    """Answer until the host closes its end."""
    limit_resources()
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(2000)
    reader = Reader()
    with os.fdopen(3, "rb") as asked, os.fdopen(4, "wb") as answers:
        for line in asked:
            message = json.loads(line)
            result = {"type": "exec_result", "id": message["id"], "ok": True}
            if message["code"]:
                try:
                    answer = reader.answer(json.loads(message["code"]))
                    result["output"] = json.dumps(answer, ensure_ascii=False)
                except Exception as error:  # noqa: BLE001 - parsers of hostile files raise anything
                    reader.forget()
                    result |= {"ok": False, "error": type(error).__name__}
            answers.write(json.dumps(result, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            answers.flush()
