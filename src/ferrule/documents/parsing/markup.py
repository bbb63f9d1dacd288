"""HTML as text: all of it, for a file was chosen by somebody; pages of the web are full of menus.

Each character is looked at a bounded number of times, whatever the file: the standard library's parser takes minutes
for some hundred kilobytes of tags that do not end.
"""

import html
import re

_HIDDEN = ("script", "style", "template", "svg", "noscript", "iframe", "object", "select")
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "br", "dd", "details", "div", "dl", "dt", "fieldset"}
    | {"figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "li"}
    | {"main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "thead", "title", "tr", "ul"}
)
_APART = frozenset({"p", "table", "ul", "ol", "pre", "title", "h1", "h2", "h3", "h4", "h5", "h6"})
"""After these comes an empty line."""
_TAG = re.compile(r"""<(/?)([a-zA-Z][a-zA-Z0-9:-]*)((?:[^'">]|"[^"]*"|'[^']*')*+)>""")
_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9:-]*)")
_LONGEST = 512
"""Characters in which a tag ends that has `>` in its quotes."""
_SPACES = re.compile(r"\s+")
_GAPS = re.compile(r"(?<![ \t])[ \t]*+\n(?:[ \t]*+\n)+")
"""Begins at the first of some blanks, not at each of them: there may be a million."""


def html_text(source: str) -> str:
    """Return the text of a document of HTML, headings and lists as in Markdown."""
    return _GAPS.sub("\n\n", "".join(_Reader(source).read()))


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._pieces = list[str]()
        self._endless = set[str]()
        """What has no end from here on."""
        self._as_is = False
        self._cells = 0

    def read(self) -> "list[str]":
        """Return the text in pieces."""
        while self._at < len(self._source):
            begun = self._source.find("<", self._at)
            self._text(self._source[self._at : begun if begun >= 0 else None])
            if begun < 0:
                break
            self._at = begun
            self._markup()
        return self._pieces

    def _markup(self) -> None:
        """Take what begins with a `<`."""
        source, begun = self._source, self._at
        if source.startswith("<!--", begun):
            self._skip_to("-->")
        elif source.startswith(("<!", "<?"), begun):
            self._skip_to(">")
        elif named := _NAME.match(source, begun):
            ends = ">" not in self._endless and source.find(">", begun, begun + _LONGEST) >= 0
            whole = _TAG.match(source, begun, begun + _LONGEST) if ends else None
            if whole is not None:
                self._at = whole.end()
            else:
                self._skip_to(">")
            self._tag(named[1].lower(), closes=source[begun + 1] == "/")
        else:
            self._text("<")
            self._at += 1

    def _skip_to(self, end: str) -> None:
        """Go behind what ends here; what does not end is text."""
        found = -1 if end in self._endless else self._source.find(end, self._at)
        if found < 0:
            self._endless.add(end)
            self._text("<")
            self._at += 1
        else:
            self._at = found + len(end)

    def _tag(self, tag: str, *, closes: bool) -> None:
        if tag in _HIDDEN:
            if not closes:
                self._hide(tag)
        elif tag in ("td", "th"):
            if not closes:
                self._pieces.append(" | " if self._cells else "")
                self._cells += 1
        elif tag in _BLOCKS:
            self._block(tag, closes=closes)

    def _hide(self, tag: str) -> None:
        if tag not in self._endless:
            end = re.compile(f"</{tag}\\b[^>]{{0,{_LONGEST}}}>", re.IGNORECASE).search(self._source, self._at)
            if end is not None:
                self._at = end.end()
                return
            self._endless.add(tag)

    def _block(self, tag: str, *, closes: bool) -> None:
        if tag == "pre":
            self._as_is = not closes
        if closes:
            self._pieces.append("\n\n" if tag in _APART else "\n")
            return
        self._cells = 0
        heading = "#" * int(tag[1]) + " " if tag[0] == "h" and tag[1:].isdigit() else ""
        self._pieces.append("\n" + (heading or ("- " if tag == "li" else "")))

    def _text(self, text: str) -> None:
        text = html.unescape(text)
        if not self._as_is:
            text = _SPACES.sub(" ", text)
            if not self._pieces or self._pieces[-1].endswith("\n"):
                text = text.lstrip(" ")
        if text:
            self._pieces.append(text)
