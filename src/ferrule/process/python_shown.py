"""What cells of the Python kernel show: values, pictures, figures.

As `python_cells`, which see, this file is sent as text; the kernel evaluates it before, in the same namespace.
"""

from __future__ import annotations

import base64
import builtins
import importlib.machinery
import io
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ferrule.process.python_tools import Image

MAX_TEXT = 256 * 1024
"""Characters of one value or error that are shown; the model reads far less."""
MAX_IMAGES = 8
"""Images that one cell may show: more do not fit any model's context."""
MAX_IMAGE_BYTES = 8 * 1024 * 1024
"""Of all images of one cell."""
PNG = b"\x89PNG\r\n\x1a\n"


class Shown:
    """The images of the running cell."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.size = 0
        self.left_out = 0

    def add(self, data: bytes, kind: str = "image/png") -> None:
        if len(self.urls) >= MAX_IMAGES or self.size + len(data) > MAX_IMAGE_BYTES:
            self.left_out += 1
            return
        self.size += len(data)
        self.urls.append(f"data:{kind};base64,{base64.b64encode(data).decode()}")

    def tell(self) -> None:
        """Say that there were too many."""
        if self.left_out:
            limits = f"a cell shows up to {MAX_IMAGES}, with {MAX_IMAGE_BYTES} bytes in all"
            print(f"images left out: {self.left_out}; {limits}")

    def end(self) -> list[str]:
        """Return the images, and begin anew."""
        urls = self.urls
        self.urls, self.size, self.left_out = [], 0, 0
        return urls


shown = Shown()


def show(value: object) -> None:
    """Print a value as the interpreter does; if it is a picture, show that, too."""
    print(cut(repr(value)))
    if isinstance(value, Image):
        shown.add(value.data, value.type)
        return
    png = png_of(value)
    if png is not None:
        shown.add(png)


def display(*values: object) -> None:
    """Show values, pictures among them, before the cell ends."""
    for value in values:
        show(value)


def displayhook(value: object) -> None:
    if value is None:
        return
    builtins._ = None  # type: ignore[attr-defined]
    show(value)
    builtins._ = value  # type: ignore[attr-defined]


def png_of(value: object) -> bytes | None:
    kind = type(value)
    if not any("_repr_png_" in vars(base) for base in kind.__mro__):
        return png_of_figure(value)
    try:
        png = value._repr_png_()  # type: ignore[attr-defined]
        png = png[0] if isinstance(png, tuple) else png
        png = base64.b64decode(png) if isinstance(png, str) else png
    except Exception as error:  # noqa: BLE001 - of code that is not ours
        print(cut(f"{kind.__name__}._repr_png_ failed: {error!r}"), file=sys.stderr)
        return None
    if png is None or (isinstance(png, bytes) and png.startswith(PNG)):
        return png
    print(f"{kind.__name__}._repr_png_ returned something other than a PNG", file=sys.stderr)
    return None


def cut(text: str) -> str:
    """Return the beginning and the end of a text that is too long, without halves of surrogate pairs."""
    if len(text) > MAX_TEXT:
        half = MAX_TEXT // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters omitted …\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def png_of_figure(value: object) -> bytes | None:
    module = sys.modules.get("matplotlib.figure")
    if not isinstance(value, getattr(module, "Figure", ())):
        return None
    png = saved(value)
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(value)  # so that it is shown once
    return png


def saved(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()


def show_figures(*_: object, **__: object) -> None:
    """Show every open figure of pyplot and close it. Also `pyplot.show` itself."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    numbers = pyplot.get_fignums() if hasattr(pyplot, "get_fignums") else []
    try:
        for number in numbers:
            shown.add(saved(pyplot.figure(number)))
    finally:
        if numbers:
            pyplot.close("all")


class PyplotFinder:
    """Finds pyplot for the import system, and gives it our `show`: its own has no screen."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name != "matplotlib.pyplot":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        loader: Any = spec and spec.loader
        if not hasattr(loader, "exec_module"):
            return spec
        load = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            load(module)
            module.show = show_figures  # type: ignore[attr-defined]

        loader.exec_module = exec_module
        return spec
