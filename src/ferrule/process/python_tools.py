"""The tools that cells of the Python kernel call.

As `python_cells`, which see, this file is sent as text; the kernel evaluates it first, in the same namespace.
"""

from __future__ import annotations

import _thread
import base64
import builtins
import json
import os
from collections.abc import Callable
from typing import Any, Protocol

MAX_CALL = 8 * 1024 * 1024
"""Characters of a call: even escaped they are fewer than the bytes that the host reads of a message."""


class Messages(Protocol):
    """The messages, as `python_cells.Host` has them."""

    message: Any

    def read(self) -> None: ...
    def answer(self, message: dict[str, object]) -> None: ...
    def hold_signals(self) -> set[int]: ...
    def hold_only(self, held: set[int]) -> None: ...


class ToolError(Exception):
    """A tool was refused or has failed. The text is what a model reads then."""


class Image:
    """An image that a tool gave: `data` is a file of the MIME type `type`."""

    def __init__(self, url: str) -> None:
        head, _, text = url.partition(",")
        self.type = head[len("data:") :].partition(";")[0]
        self.data = base64.b64decode(text)

    def __repr__(self) -> str:
        return f"<{self.type}, {len(self.data)} bytes>"


class Call:
    """A call that waits for its answer. `done` is held until it is there."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.done = _thread.allocate_lock()
        self.done.acquire()


class Tools:
    """Calls tools of the host for the running cell, from any of its threads.

    While calls wait, a thread of ours reads their answers: no handler of a signal runs there, which could tear one.
    """

    def __init__(self, host: Messages) -> None:
        self._host = host
        self._pid = os.getpid()
        self._lock = _thread.allocate_lock()
        self._reading = _thread.allocate_lock()
        self._waiting: dict[str, Call] = {}
        self._calls = 0
        self._cell: str | None = None
        self._function = self._as_function()

    def begin(self, request: dict[str, Any]) -> None:
        """Lend the tools to a cell, if the host lends them."""
        if request.get("tools"):
            self._cell = request["id"]
            vars(builtins).setdefault("call_tool", self._function)
            vars(builtins).setdefault("ToolError", ToolError)

    def end(self) -> None:
        """Let no more calls begin, and wait for those that have."""
        with self._lock:
            self._cell = None
        with self._reading:
            pass

    def _as_function(self) -> Callable[..., Any]:
        """Return what cells call, as a function that is found by its name: processes of `multiprocessing` get it so."""

        def call_tool(name: str, args: Any = None) -> Any:
            """Call another tool: `args` is a dict, or the text of a freeform tool.

            Returns its text, or a list of its texts and images. Raises `ToolError` with what a model reads instead.
            """
            return self._call(name, args)

        call_tool.__module__, call_tool.__qualname__ = "builtins", "call_tool"
        return call_tool

    def _call(self, name: str, args: Any) -> Any:
        raw = isinstance(args, str)
        text = args if raw else json.dumps({} if args is None else args)
        call = self._sent({"tool_name": sendable(str(name)), "arguments": sendable(text), "raw": raw})
        call.done.acquire()
        if not call.answer["ok"]:
            raise ToolError(call.answer["error"])
        return given(call.answer["response"])

    def _sent(self, asked: dict[str, object]) -> Call:
        if os.getpid() != self._pid:
            raise RuntimeError("call_tool works in the kernel's own process only, not in a fork of it")
        held = self._host.hold_signals()
        try:
            with self._lock:
                if self._cell is None:
                    raise RuntimeError("call_tool works only while a cell runs")
                self._calls += 1
                key, call = f"tool_{self._calls}", Call()
                self._host.answer({"type": "run_tool", "id": key, "exec_id": self._cell, **asked})
                self._waiting[key] = call
                if self._reading.acquire(False):
                    _thread.start_new_thread(self._read, ())
                return call
        finally:
            self._host.hold_only(held)

    def _read(self) -> None:
        """Hand out answers until no call waits."""
        while True:
            self._host.read()
            answer = self._host.message
            with self._lock:
                call = self._waiting.pop(answer.get("id"), None)
                if call is not None:
                    call.answer = answer
                    call.done.release()
                if not self._waiting:
                    self._reading.release()
                    return


def sendable(text: str) -> str:
    """Return the text without halves of surrogate pairs. Raises `ValueError` for one that is too long."""
    if len(text) > MAX_CALL:
        raise ValueError(f"a call of a tool takes up to {MAX_CALL} characters, not {len(text)}")
    return text.encode("utf-8", "replace").decode()


def given(response: Any) -> Any:
    """Return what a tool gave: a text, or texts and images."""
    if not isinstance(response, list):
        return response
    return [Image(part["image_url"]) if is_image(part) else part.get("text", part) for part in response]


def is_image(part: dict[str, Any]) -> bool:
    return str(part.get("image_url")).startswith("data:image/")


ToolError.__module__ = Image.__module__ = "builtins"  # tracebacks name them without one
