"""Files that are not UTF-8: known, changed, and never harmed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.patch import MatchError, PlainFiles, apply_patch, parse, plan
from ferrule.patch.encoding import PLAIN
from ferrule.patch.text import Text, decoded
from tests.patch.tree import edited, update

BOM = "\ufeff"
TEXTS = {
    "cp1252": [
        "café\n",
        "résumé naïve façade\n",
        "x = 1  # größe\n",
        "Prix : 12 €\n",
        "«bonjour»\nÀ bientôt\n",
        "© 2020\n",
    ],
    "cp1251": ["Привет, мир\n", "# комментарий на русском языке\nx = 1\n", "Ошибка\n"],
    "gb18030": ["中文\n", "# 这是一个注释，用于测试\nx=1\n", "数据库连接失败\n", "测试"],
    "cp932": ["日本語\n", "これはテストです。\n", "// 変数の初期化\nint x;\n"],
    "euc_jp": ["日本語のファイルです\n"],
    "euc_kr": ["안녕하세요 세계\n", "파일을 열 수 없습니다\n"],
    "big5": ["繁體中文測試\n", "這是一個測試檔案\n"],
    "utf-16-le": ["hello\nworld\n", "hello\rworld\r"],
    "utf-16-be": ["hello\nworld\n"],
    "utf-32-le": ["hello\nworld\n"],
    "utf-32-be": ["hello\nwörld\n"],
}


@pytest.mark.parametrize(("codec", "text"), [(codec, text) for codec, texts in TEXTS.items() for text in texts])
def test_n043_encodings_are_told_by_their_bytes(codec: str, text: str) -> None:
    found, encoding = decoded(text.encode(codec))
    assert (found, encoding.codec, encoding.sure) == (text, codec, False)


@pytest.mark.parametrize(
    "data",
    [
        b"a\0b\n", b"a\0b\0", b"\x80\x81\x82", bytes(range(256)), b"\xff\x80\n", b"\xff\xfe\x00\xd8\n\0",
        b"\x89PNG\r\n\x1a\n\0\0",
        "これはテストです".encode("cp932") + b"\x87\x90\n",  # which Shift-JIS reads, and would write as others
        "café déjà vu → ✓\n".encode() + b"\xe9\n", "Καλημέρα".encode("iso8859-7")[:3] + b"\xff",
    ],
)  # fmt: skip
def test_n043_what_cannot_be_told_stays_bytes(data: bytes) -> None:
    text, encoding = decoded(data)
    assert (encoding, encoding.encode(text)) == (PLAIN, data)


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        (b"#!/usr/bin/python\n# -*- coding: iso-8859-15 -*-\n", "iso8859-15"),
        (b"# -*- coding: latin-1 -*-\n", "cp1252"),
        (b"<?xml version='1.0' encoding='koi8-r'?>\n", "koi8-r"),
        (b'<meta charset="shift_jis">\n', "cp932"),
        (b"# coding: rot13\n", "cp1252"),
        (b"# coding: unicode_escape\n", "cp1252"),
        (b"# coding: no-such\n", "cp1252"),
        (b"# coding: utf-16\n", "cp1252"),
    ],
)
def test_n043_a_declaration_counts_if_it_is_one_of_text(head: bytes, codec: str) -> None:
    data = head + ("値\n".encode("cp932") if codec == "cp932" else b"s = '\xe9t\xe9'\n")
    text, encoding = decoded(data)
    assert (encoding.codec, encoding.encode(text)) == (codec, data)


@given(st.binary(max_size=300) | st.text(max_size=100).map(lambda text: (BOM + text).encode("utf-16-le", "replace")))
def test_n043_every_byte_comes_back(data: bytes) -> None:
    text, encoding = decoded(data)
    assert encoding.encode(text) == data
    assert Text.read(data).write() == data


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["\n", ""])
def test_n043_a_marked_file_is_changed_in_its_encoding(tmp_path: Path, codec: str, end: str, last: str) -> None:
    def text(middle: str) -> bytes:
        return f"{BOM}größe{end}{middle}{end}a\u2028b\rc{end}这是没有任何拉丁字母的一行文字{last and end}".encode(codec)

    after = edited(tmp_path, text("eins"), "@@", " größe", "-eins", "+世界 😀")
    assert after == text("世界 😀")


def test_n043_a_guessed_encoding_is_kept_and_told(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("日本語のテスト\r\nb\r\n".encode("cp932"))
    planned = plan(parse(update("f", "@@", " 日本語のテスト", "-b", "+値")), PlainFiles(), str(tmp_path))
    assert planned.operations[0].notes == ("f is Shift-JIS, as far as its bytes tell, and stays so.",)
    assert planned.operations[0].unified_diff() == "@@ -1,2 +1,2 @@\n 日本語のテスト\r\n-b\r\n+値\r\n"
    assert planned.operations[0].after == "日本語のテスト\r\n値\r\n".encode("cp932")


def test_n043_a_character_that_the_encoding_does_not_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("café\nb\n".encode("latin-1"))
    with pytest.raises(MatchError, match=r"Windows-1252.* which has no '茶' \(U\+8336\).*iconv -f cp1252 -t utf-8"):
        apply_patch(update("f", "@@", "-b", "+茶"), str(tmp_path))
    assert path.read_bytes() == "café\nb\n".encode("latin-1")


def test_n043_the_diff_holds_where_an_edit_changes_what_the_bytes_tell(tmp_path: Path) -> None:
    """Without its last line end, and then without its mark, the new content would be read as something else."""
    before = "a\nb\n".encode("utf-16-le")
    (tmp_path / "f").write_bytes(before)
    planned = plan(parse(update("f", "@@", "-a", "-b", "+世界人民大团结万岁")), PlainFiles(), str(tmp_path))
    assert planned.operations[0].unified_diff() == "@@ -1,2 +1 @@\n-a\n-b\n+世界人民大团结万岁\n"


@pytest.mark.parametrize(
    ("before", "line", "said"),
    [
        (f"{BOM}wörld\n".encode("utf-16-le"), "-world", "The file is UTF-16LE."),
        (b"caf\xe9\n", "-caf\ufffd", "Windows-1252 (Latin-1), as far as its bytes tell; \ufffd stands for bytes that"),
        (b"\x80\x81\nb\n", "-c", "with bytes that are not UTF-8, or NULs: 1. Only the others can be named."),
        (b"\xff\xfea\0\0\0b\0c", "-c", "It starts like UTF-16LE, and is damaged."),
    ],
)
def test_n043_a_miss_names_the_encoding(tmp_path: Path, before: bytes, line: str, said: str) -> None:
    with pytest.raises(MatchError) as failed:
        edited(tmp_path, before, "@@", line, "+x")
    assert said in str(failed.value)
    assert (tmp_path / "f.txt").read_bytes() == before
