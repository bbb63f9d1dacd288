"""The tables of an index, and what is done with them inside a transaction.

`words` is an FTS5 table without content of its own: what is taken out has to be given once more as it was put in, and
is made again from `chunks`. All `vectors` are of the one model that `facts` names. `pending` has the chunks that wait
for a vector. Numbers are never used twice, so that whoever keeps vectors in memory needs to look only at new ones.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ferrule.retrieval.chunking import Chunk
from ferrule.retrieval.filters import Attributes, Comparison, Filter, Value, matching
from ferrule.retrieval.words import indexed, match_expression

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VERSION = 1
_SCHEMA = """
create table facts (name text primary key, value text not null) without rowid;
create table documents (
    id integer primary key autoincrement, name text not null unique, title text not null,
    attributes text not null, stamp text not null
);
create table attributes (
    key text not null, kind text not null, value not null, document integer not null,
    primary key (key, kind, value, document)
) without rowid;
create index attributes_of on attributes (document);
create table chunks (
    id integer primary key autoincrement, document integer not null, start integer not null, text text not null
);
create index chunks_of on chunks (document);
create table vectors (
    id integer primary key autoincrement, chunk integer not null unique, document integer not null, vector blob not null
);
create table pending (chunk integer primary key);
create virtual table words using fts5(title, text, content = '', tokenize = 'unicode61 remove_diacritics 2');
"""
_OPERATORS = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class Document(msgspec.Struct, frozen=True):
    """What is put into an index: a document under a name of the caller's. `title` is searched, too. `stamp` says which
    state of it this is, in the caller's words."""

    name: str
    chunks: Sequence[Chunk]
    title: str = ""
    attributes: Attributes = {}
    stamp: str = ""


class Found(msgspec.Struct, frozen=True):
    """A chunk with its document."""

    document: str
    title: str
    text: str
    start: int
    attributes: dict[str, Value]


class Counts(msgspec.Struct, frozen=True):
    """How much is in an index; `waiting` chunks have no vectors."""

    documents: int
    chunks: int
    waiting: int


def make_tables(tx: sqlite3.Connection) -> bool:
    """Make the tables of a new file. False if the file has those of another version."""
    version: int = tx.execute("pragma user_version").fetchone()[0]
    if version == 0:
        for statement in _SCHEMA.split(";"):
            tx.execute(statement)
        tx.execute(f"pragma user_version = {VERSION}")
    return version in (0, VERSION)


def put(tx: sqlite3.Connection, document: Document, vectors: "NDArray[np.float32] | None") -> int:
    """Put a document in the place of one of that name. Returns the bytes that its text and its vectors take."""
    remove(tx, document.name)
    number = tx.execute(
        "insert into documents (name, title, attributes, stamp) values (?, ?, ?, ?)",
        (document.name, document.title, _as_json(document.attributes), document.stamp),
    ).lastrowid
    assert number is not None
    _add_attributes(tx, number, document.attributes)
    used, title = 0, indexed(document.title)
    numbers: list[int] = []
    for chunk in document.chunks:
        added = tx.execute(
            "insert into chunks (document, start, text) values (?, ?, ?)", (number, chunk.start, chunk.text)
        ).lastrowid
        assert added is not None
        tx.execute("insert into words (rowid, title, text) values (?, ?, ?)", (added, title, indexed(chunk.text)))
        numbers.append(added)
        used += len(chunk.text.encode())
    if vectors is None:
        tx.executemany("insert into pending values (?)", ((one,) for one in numbers))
        return used
    add_vectors(tx, [(one, number) for one in numbers], vectors)
    return used + vectors.nbytes


def remove(tx: sqlite3.Connection, name: str) -> bool:
    """Take out a document. False if there is none of that name."""
    row = tx.execute("select id, title from documents where name = ?", (name,)).fetchone()
    if row is None:
        return False
    number, title = row[0], indexed(row[1])
    for chunk, text in tx.execute("select id, text from chunks where document = ?", (number,)).fetchall():
        tx.execute(
            "insert into words (words, rowid, title, text) values ('delete', ?, ?, ?)", (chunk, title, indexed(text))
        )
        tx.execute("delete from vectors where chunk = ?", (chunk,))
        tx.execute("delete from pending where chunk = ?", (chunk,))
    tx.execute("delete from chunks where document = ?", (number,))
    tx.execute("delete from attributes where document = ?", (number,))
    tx.execute("delete from documents where id = ?", (number,))
    return True


def set_attributes(tx: sqlite3.Connection, name: str, attributes: Attributes) -> bool:
    """Give a document other attributes. False if there is none of that name."""
    row = tx.execute("select id from documents where name = ?", (name,)).fetchone()
    if row is None:
        return False
    tx.execute("delete from attributes where document = ?", row)
    tx.execute("update documents set attributes = ? where id = ?", (_as_json(attributes), row[0]))
    _add_attributes(tx, row[0], attributes)
    return True


def _as_json(attributes: Attributes) -> str:
    return msgspec.json.encode(dict(attributes)).decode()


def _add_attributes(tx: sqlite3.Connection, number: int, attributes: Attributes) -> None:
    for key, value in attributes.items():
        tx.execute("insert into attributes values (?, ?, ?, ?)", (key, *_stored(value), number))


def _stored(value: Value) -> tuple[str, str | float]:
    """Return the kind of a value, and the value as SQLite compares it with others of that kind."""
    if isinstance(value, bool):
        return "flag", float(value)
    return ("text", value) if isinstance(value, str) else ("number", float(value))


def chunks_of(tx: sqlite3.Connection, name: str) -> list[str]:
    """Return the texts of a document's chunks, in order."""
    found = tx.execute(
        "select text from chunks where document = (select id from documents where name = ?) order by id", (name,)
    )
    return [text for (text,) in found]


def stamps(tx: sqlite3.Connection) -> dict[str, str]:
    """Return the stamp of each document by its name."""
    return dict(tx.execute("select name, stamp from documents"))


def set_stamps(tx: sqlite3.Connection, stamps: Mapping[str, str]) -> None:
    """Give documents other stamps, by their names."""
    tx.executemany("update documents set stamp = ? where name = ?", ((stamp, name) for name, stamp in stamps.items()))


def passing(tx: sqlite3.Connection, filter: Filter) -> set[int]:  # noqa: A002 - the API's name
    """Return the numbers of the documents that a filter takes."""

    def find(test: Comparison) -> set[int]:
        return {number for value in _values(test) for number in _with(tx, test, *_stored(value))}

    return matching(filter, find, lambda: {number for (number,) in tx.execute("select id from documents")})


def _values(test: Comparison) -> Iterable[Value]:
    return test.value if isinstance(test.value, tuple) else (test.value,)


def _with(tx: sqlite3.Connection, test: Comparison, kind: str, value: str | float) -> Iterable[int]:
    operator = _OPERATORS.get(test.type, "=")
    rows = tx.execute(
        f"select document from attributes where key = ? and kind = ? and value {operator} ?", (test.key, kind, value)
    )
    return (number for (number,) in rows)


def by_words(
    tx: sqlite3.Connection, question: str, limit: int, allowed: Sequence[int] | None
) -> list[tuple[int, float]]:
    """Return the chunks with words of a question, the best by BM25 first, each with its score."""
    wanted = match_expression(question)
    if not wanted:
        return []
    inside = "" if allowed is None else _CHUNKS_OF_SOME
    rows = tx.execute(
        f"select rowid, -rank from words where words match ? {inside} order by rank, rowid limit ?",
        (wanted, *(() if allowed is None else (_listed(allowed),)), limit),
    )
    return rows.fetchall()


_CHUNKS_OF_SOME = "and rowid in (select id from chunks where document in (select value from json_each(?)))"


def _listed(numbers: Sequence[int]) -> str:
    return msgspec.json.encode(list(numbers)).decode()


def found(tx: sqlite3.Connection, chunks: Sequence[int]) -> dict[int, Found]:
    """Return chunks by their numbers."""
    rows = tx.execute(
        "select chunks.id, name, title, text, start, attributes from chunks join documents on documents.id = document"
        " where chunks.id in (select value from json_each(?))",
        (_listed(chunks),),
    )
    return {
        number: Found(name, title, text, start, msgspec.json.decode(attributes))
        for number, name, title, text, start, attributes in rows
    }


def fact(tx: sqlite3.Connection, name: str) -> str:
    """Return what is noted under a name; empty if nothing is."""
    row = tx.execute("select value from facts where name = ?", (name,)).fetchone()
    return row[0] if row else ""


def set_fact(tx: sqlite3.Connection, name: str, value: str) -> None:
    """Note something about the index."""
    tx.execute("insert or replace into facts values (?, ?)", (name, value))


def counts(tx: sqlite3.Connection) -> Counts:
    """Count what is in the index."""
    row = tx.execute(
        "select (select count(*) from documents), (select count(*) from chunks), (select count(*) from pending)"
    ).fetchone()
    return Counts(*row)


def model(tx: sqlite3.Connection) -> str:
    """Return the name of the model whose vectors are stored; empty if there are none yet."""
    return fact(tx, "model")


def adopt(tx: sqlite3.Connection, name: str) -> None:
    """Let the vectors be of this model from now on. Those of another go, and what had them waits for new ones."""
    if model(tx) != name:
        tx.execute("delete from vectors")
        tx.execute("insert or ignore into pending select id from chunks")
        set_fact(tx, "model", name)


def add_vectors(tx: sqlite3.Connection, chunks: Sequence[tuple[int, int]], vectors: "NDArray[np.float32]") -> None:
    """Store vectors of chunks, each given with its document."""
    tx.executemany(
        "insert into vectors (chunk, document, vector) values (?, ?, ?)",
        ((*one, row.tobytes()) for one, row in zip(chunks, vectors, strict=True)),
    )


def waiting(tx: sqlite3.Connection, limit: int) -> list[tuple[int, str]]:
    """Return chunks that wait for a vector, and their texts."""
    return tx.execute(
        "select chunk, text from pending join chunks on chunks.id = chunk order by chunk limit ?", (limit,)
    ).fetchall()


def give_vectors(tx: sqlite3.Connection, name: str, chunks: Sequence[int], vectors: "NDArray[np.float32]") -> None:
    """Store the vectors of chunks that waited for them, as far as they still do."""
    adopt(tx, name)
    for place, chunk in enumerate(chunks):
        row = tx.execute("select document from chunks where id = ?", (chunk,)).fetchone()
        if row is not None and give_up(tx, chunk):
            add_vectors(tx, [(chunk, row[0])], vectors[place : place + 1])


def give_up(tx: sqlite3.Connection, chunk: int) -> bool:
    """Let a chunk wait for no vector any more. False if it did not."""
    return tx.execute("delete from pending where chunk = ?", (chunk,)).rowcount > 0


def new_vectors(tx: sqlite3.Connection, after: int) -> sqlite3.Cursor:
    """Return numbers, chunks, documents and vectors of those with a higher number than `after`."""
    return tx.execute("select id, chunk, document, vector from vectors where id > ? order by id", (after,))


def vector_count(tx: sqlite3.Connection, after: int = 0) -> int:
    """Return how many vectors have a higher number than `after`."""
    where = "where id > ?" if after else "where ? = 0"
    count: int = tx.execute(f"select count(*) from vectors {where}", (after,)).fetchone()[0]
    return count


def vector_numbers(tx: sqlite3.Connection) -> set[int]:
    """Return the numbers of all vectors."""
    return {number for (number,) in tx.execute("select id from vectors")}


def dimension(tx: sqlite3.Connection) -> int:
    """Return the dimension of the vectors, 0 if there are none."""
    row: Mapping[int, int] | None = tx.execute("select length(vector) from vectors limit 1").fetchone()
    return row[0] // 4 if row else 0
