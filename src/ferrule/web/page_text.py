"""Read pages and PDFs as text, in a process of its own: they are somebody else's, and parsers have been led into loops
and into memory without end.

Runs alone, without ferrule. Speaks as a kernel does (`ferrule.process.kernel`): a cell's code is a JSON object of
`kind` (html or pdf), `url` and `data` (base64); its output is a JSON object of `title` and `text`.
"""

import base64
import io
import json
import logging
import os
import sys

MEMORY = 1 << 30
"""Bytes that the process may write to: the largest pages need a tenth."""
MAX_PDF_PAGES = 500
MAX_TEXT = 4_000_000
"""Characters of a page: what a model reads of a book."""


def read_html(data: bytes, url: str) -> "tuple[str, str]":
    """Return the title and the text of a page, as Markdown."""
    import lxml.html  # type: ignore[import-untyped]
    import trafilatura

    page = data.decode()
    tree = lxml.html.document_fromstring(page.encode() if page.lstrip().startswith("<?xml") else page)
    titles = (one.text_content().strip() for path in (".//title", ".//h1") for one in tree.iterfind(path))
    title = next(filter(None, titles), "")
    text = trafilatura.extract(
        tree, url=url, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
    )
    return title, text or trafilatura.html2txt(tree) or ""


def read_pdf(data: bytes, url: str) -> "tuple[str, str]":
    """Return the title and the text of a PDF."""
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted:
        reader.decrypt("")
    texts = list[str]()
    for page in reader.pages[:MAX_PDF_PAGES]:
        texts.append(page.extract_text())
        if sum(map(len, texts)) > MAX_TEXT:
            break
    title = reader.metadata.title if reader.metadata else None
    return str(title or ""), "\n\n".join(texts)


def read(asked: "dict[str, str]") -> "dict[str, str]":
    """Read what was sent. A module that is missing is named as `missing`."""
    reading = read_pdf if asked["kind"] == "pdf" else read_html
    try:
        title, text = reading(base64.b64decode(asked["data"]), asked["url"])
    except ModuleNotFoundError as error:
        return {"missing": error.name or ""}
    return {"title": title[:1000], "text": text[:MAX_TEXT]}


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
    with os.fdopen(3, "rb") as asked, os.fdopen(4, "wb") as answers:
        for line in asked:
            message = json.loads(line)
            result = {"type": "exec_result", "id": message["id"], "ok": True}
            if message["code"]:
                try:
                    result["output"] = json.dumps(read(json.loads(message["code"])))
                except Exception as error:  # noqa: BLE001 - parsers of hostile files raise anything
                    result |= {"ok": False, "error": type(error).__name__}
            answers.write(json.dumps(result).encode() + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
