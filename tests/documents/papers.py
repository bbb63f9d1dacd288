"""Documents, as small as they can be."""

import io
import zipfile

import pypdf

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
X = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'


def pdf(text: str) -> bytes:
    """A PDF of one page with this text."""
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(200, 200)
    content = pypdf.generic.DecodedStreamObject()
    content.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    name = pypdf.generic.NameObject
    fonts = pypdf.generic.DictionaryObject({name(k): name(v) for k, v in font.items()})
    page[name("/Contents")] = writer._add_object(content)
    page[name("/Resources")] = pypdf.generic.DictionaryObject(
        {name("/Font"): pypdf.generic.DictionaryObject({name("/F1"): writer._add_object(fonts)})}
    )
    writer.add_metadata({"/Title": "A paper"})
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def locked_pdf() -> bytes:
    """A PDF that asks for a password."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("secret")))
    writer.encrypt("password", algorithm="RC4-128")
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def packed(**parts: str | bytes) -> bytes:
    """A zip of parts; `__` in a name stands for a slash, and `_dot_` for a dot."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as into:
        for name, text in parts.items():
            into.writestr(name.replace("__", "/").replace("_dot_", "."), text)
    return written.getvalue()


def docx(body: str, head: str = "") -> bytes:
    """A document with this body."""
    return packed(word__document_dot_xml=f"{head}<w:document {W}><w:body>{body}</w:body></w:document>")


def paragraph(text: str, style: str = "") -> str:
    """A paragraph of a document."""
    return f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'


def pptx(*slides: str) -> bytes:
    """A presentation with these texts."""
    shown = {
        f"ppt__slides__slide{at}_dot_xml": f"<p:sld {A} xmlns:p='p'><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>"
        for at, text in enumerate(slides, 1)
    }
    return packed(ppt__presentation_dot_xml="<p/>", **shown)


def xlsx(rows: str, texts: str = "", styles: str = "") -> bytes:
    """A workbook of one sheet."""
    return packed(
        xl__workbook_dot_xml=f'<workbook {X} {R}><sheets><sheet name="Prices" r:id="r1"/></sheets></workbook>',
        xl___rels__workbook_dot_xml_dot_rels='<Relationships><Relationship Id="r1" Target="worksheets/one.xml"/>'
        "</Relationships>",
        xl__worksheets__one_dot_xml=f"<worksheet {X}><sheetData>{rows}</sheetData></worksheet>",
        xl__sharedStrings_dot_xml=f"<sst {X}>{texts}</sst>",
        xl__styles_dot_xml=f"<styleSheet {X}>{styles}</styleSheet>",
    )


def odt(text: str) -> bytes:
    """A document of OpenDocument."""
    return packed(content_dot_xml=f"<o xmlns:text='t'><text:h text:outline-level='2'>Head</text:h>{text}</o>")


def bomb(piece: str) -> bytes:
    """A document of some 100 KB that unpacks to 101 MB: pieces, each with space for a megabyte."""
    written = io.BytesIO()
    with (
        zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as into,
        into.open("word/document.xml", "w") as part,
    ):
        part.write(b"<x>")
        for _ in range(101):
            part.write(piece.format(" " * (1 << 20)).encode())
    return written.getvalue()
