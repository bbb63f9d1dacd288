"""Pages of the web and PDFs."""

import io

from .refusal import invalid

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
    return title, (text or trafilatura.html2txt(tree) or "")[:MAX_TEXT]


def read_pdf(data: bytes, pages: "int | None" = MAX_PDF_PAGES, most: int = MAX_TEXT) -> "tuple[str, str]":
    """Return the title and the text of a PDF: so many pages, until they have more than `most` characters."""
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise invalid("The PDF is encrypted: save it without a password.")
    texts, size = list[str](), 0
    for page in reader.pages[:pages]:
        texts.append(page.extract_text())
        size += len(texts[-1])
        if size > most:
            break
    title = reader.metadata.title if reader.metadata else None
    return str(title or ""), "\n\n".join(texts)
