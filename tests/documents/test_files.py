"""Files of every kind as text, and those that are none."""

from collections.abc import AsyncIterator

import pytest

from ferrule.documents.extraction import Extractor, Unreadable
from ferrule.documents.parsing.markup import html_text
from tests.documents import papers
from tests.documents.papers import docx, paragraph, pdf, pptx, xlsx

CELLS = (
    '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>each</t></is></c></row>'
    '<row><c r="A2" t="str"><v>Pear</v></c><c r="B2" s="1"><v>45000</v></c><c r="C2"><v>1.5</v></c>'
    '<c r="D2" t="b"><v>1</v></c></row>'
)
TEXTS = "<si><t>Na</t><rPh><t>nope</t></rPh><r><t>me</t></r></si>"
STYLES = '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
TABLE = "<w:tbl><w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>"
TWICE = (
    "<mc:AlternateContent xmlns:mc='m'><mc:Choice>{0}</mc:Choice><mc:Fallback>{0}</mc:Fallback></mc:AlternateContent>"
)
HTML = (
    "<!doctype html><title>Pears</title><script>no()</script><h2>Their  price</h2>\n<p>One&nbsp;&amp; a half"
    "<br>euro</p><ul><li>red<li>green</ul><table><tr><td>a<td>b</table><pre>x\n  y</pre>"
)

READ = {
    "plain.txt": ("Grüße\r\nzwei".encode(), "Grüße\nzwei"),
    "latin.txt": ("Grüße".encode("latin-1"), "Grüße"),
    "utf8_bom.txt": ("Grüße".encode("utf-8-sig"), "Grüße"),
    "utf16.txt": ("Grüße, Привет".encode("utf-16"), "Grüße, Привет"),
    "utf16_be.txt": (b"\xfe\xff" + "Grüße".encode("utf-16-be"), "Grüße"),
    "utf16_bare.csv": ("name;price\nПривет;1".encode("utf-16-le"), "name;price\nПривет;1"),
    "utf32.txt": ("Grüße".encode("utf-32"), "Grüße"),
    "code.py": (b"def f():\n\treturn 1\n", "def f():\n\treturn 1"),
    "data.json": (b'{"height": 42}', '{"height": 42}'),
    "notes.md": (b"# Pears\n\n*sweet*", "# Pears\n\n*sweet*"),
    "colours.log": (b"\x1b[31mred\x1b[0m\x0c", "\x1b[31mred\x1b[0m"),
    "page.bin": (
        HTML.encode(),
        "Pears\n\n## Their price\n\nOne & a half\neuro\n\n- red\n- green\n\na | b\n\nx\n  y",
    ),
    "charset.html": ('<meta charset="cp1251"><p>Привет'.encode("cp1251"), "Привет"),
    "a_zero.txt": (b"pears\0plums" + b" and more" * 200, "pears plums" + " and more" * 200),
    "odd.html": (b'<meta charset="punycode">\xe4', "ä"),
    "paper.dat": (pdf("The tower has 42 metres"), "The tower has 42 metres"),
    "letter.docx": (
        docx(
            paragraph("Pears", "Heading2") + TABLE.format(paragraph("a"), paragraph("b")) + TWICE.format(paragraph("c"))
        ),
        "## Pears\n\na | b\n\nc",
    ),
    "talk.pptx": (pptx("Pears", "Plums"), "## Slide 1\n\nPears\n\n## Slide 2\n\nPlums"),
    "prices.xlsx": (xlsx(CELLS, TEXTS, STYLES), "## Prices\n\nName |  | each\nPear | 2023-03-15 | 1.5 | TRUE"),
    "open.odt": (papers.odt("<text:p>One<text:tab/>two</text:p>"), "## Head\n\nOne\ttwo"),
}

ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'


def refused_files() -> dict[str, tuple[bytes, str, str]]:
    """What is read as no text, with the code and the words of its refusal. Made by the test, not as it is collected: it
    takes half a second, and each worker collects all tests."""
    return {
        "empty.txt": (b"", "invalid_file", "The file is empty."),
        "blank.txt": (b" \n\t ", "invalid_file", "There is no text"),
        "picture.txt": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 8, "unsupported_file", "is no text"),
        "controls.txt": (bytes(range(1, 32)) * 40, "unsupported_file", "is no text"),
        "old.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "unsupported_file", "save it as docx"),
        "files.zip": (papers.packed(a="x"), "unsupported_file", "Zips are not read"),
        "cut.zip": (papers.packed(a="x")[:40], "invalid_file", "damaged zip"),
        "cut.docx": (docx(paragraph("x" * 900))[:-60], "invalid_file", "damaged zip"),
        "torn.docx": (docx("<w:p>"), "invalid_file", "damaged"),
        "entities.docx": (docx("&b;", ENTITIES), "invalid_file", "defines entities"),
        "bomb.docx": (papers.bomb("<!--{}-->"), "invalid_file", "more than 100 MB unpacked"),
        "wordy.docx": (papers.bomb("{}"), "invalid_file", "too much text"),
        "broken.pdf": (b"%PDF-1.7\n" + b"1 0 obj << /Type /Catalog " * 50, "invalid_file", "is damaged"),
        "scan.pdf": (pdf(""), "invalid_file", "There is no text"),
        "locked.pdf": (papers.locked_pdf(), "invalid_file", "is encrypted"),
        "long.txt": (b"x" * 16_000_001, "invalid_file", "more than 16,000,000 characters"),
    }


async def in_pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 1 << 20):
        yield data[start : start + (1 << 20)]


async def read(extractor: Extractor, name: str, data: bytes) -> str:
    return await extractor.read_file(name, len(data), in_pieces(data))


async def test_each_kind_of_file_is_read_and_what_is_none_is_refused() -> None:
    extractor = Extractor()
    for name, (data, text) in READ.items():
        assert await read(extractor, name, data) == text, name
    for name, (data, code, sentence) in refused_files().items():
        with pytest.raises(Unreadable, match=sentence) as refused:
            await read(extractor, name, data)
        assert refused.value.code == code and "/" not in str(refused.value), name
    assert await read(extractor, "after.txt", b"goes on") == "goes on"
    await extractor.aclose()


TAGS = {"<a ": 1, "<!": 1, "<!--": 1, "&#": 1, "<svg>": 0, "<b '>": 0, "<script>": 0}


async def test_html_that_does_not_end_is_read_as_fast_as_any() -> None:
    for tag, shown in TAGS.items():
        text = html_text("<p>x" + tag * 30_000)
        assert text.startswith("\nx") and (len(text) > 30_000) is bool(shown), tag


async def test_blanks_without_end_are_read_as_fast_as_any() -> None:
    blanks = " \t" * 500_000
    assert html_text(f"<pre>x{blanks}y \n{blanks}\nz</pre>") == f"\nx{blanks}y\n\nz\n\n"


async def test_a_process_that_was_ended_while_it_waited_spoils_no_file() -> None:
    extractor = Extractor()
    assert await read(extractor, "before.txt", b"begins") == "begins"
    child = extractor._idle[0]._child
    await child.kill_tree()
    await child.wait()
    assert await read(extractor, "after.txt", b"goes on") == "goes on"
    await extractor.aclose()


async def test_what_takes_too_long_is_ended_and_the_next_file_is_read() -> None:
    extractor = Extractor(file_seconds=1)
    assert await read(extractor, "before.txt", b"begins") == "begins"
    slow = docx("".join(f"<w:p><w:r><w:t>{number}</w:t></w:r></w:p>" for number in range(1_000_000)))
    with pytest.raises(Unreadable, match="takes more than 1 seconds"):
        await read(extractor, "slow.docx", slow)
    with pytest.raises(Unreadable, match="more than 256 MB"):
        await extractor.read_file("huge.txt", 1 << 30, in_pieces(b""))
    assert await read(extractor, "after.txt", b"goes on") == "goes on"
    await extractor.aclose()
