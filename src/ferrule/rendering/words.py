"""Small texts that every door shows alike."""

from ferrule.protocol.content import ContentPart, cited_pages, text_of
from ferrule.protocol.items import Reasoning


def reasoning_text(item: Reasoning) -> str:
    """Return the summary, else the raw text; empty if only the encrypted form came."""
    parts = item.summary or item.content or ()
    return "\n\n".join(filter(None, (text_of((part,)) for part in parts)))


def source_lines(content: str | tuple[ContentPart, ...]) -> list[str]:
    """Return a heading and a line for each page that a message cites, each once; nothing if it cites none."""
    pages = {str(page.get("url")): str(page.get("title") or "") for page in cited_pages(content)}
    lines = [f"  {title}  {url}" if title else f"  {url}" for url, title in pages.items()]
    return ["sources:", *lines] if lines else []


def duration(seconds: float) -> str:
    """Return a time as people read it on a clock."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def excerpt(lines: list[str], limit: int) -> list[str]:
    """Return at most `limit` lines, and one that counts the lines omitted in the middle."""
    if len(lines) <= limit + 1:
        return lines
    head = limit // 2
    return [*lines[:head], f"… {len(lines) - limit} more lines …", *lines[head - limit :]]
