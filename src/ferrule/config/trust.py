"""Decide which files of a project are read: those whose content the user has confirmed.

Trust is given to content. A record in Ferrule's home, one per project, holds the digest of every file of the list in
`project.py` that the user has confirmed. A new or changed file is not read until it is confirmed too, whoever wrote
it. `[projects."PATH"] trust_level = "trusted"` in the user's own file asks to trust a project: at first sight its
current files are recorded, once; from then on the record counts.

Records are written atomically, by one process at a time.
"""

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from ferrule.config.project import PROJECT_FOLDER, Found, ProjectFile, find_files, is_program
from ferrule.locks import lock_patiently
from ferrule.protocol.errors import UsageError
from ferrule.reading import Unreadable, read_file

FOLDER = "trust"
"""Below Ferrule's home."""
LOCK_SECONDS = 5.0
"""How long another process may hold the records: it writes one small file."""
MAX_RECORD = 1 << 20
"""Bytes of a record: some hundreds of files with their digests."""
SHOWN_NAMES = 5
"""Files named in one warning."""
_NARROWING = (".toml", ".rules")
# Files that can forbid something: their absence deserves a warning.

Wish = Literal["trusted", "untrusted"] | None
"""The trust level in the user's own configuration."""
How = Literal["new", "changed", "gone"]


class Record(msgspec.Struct, frozen=True):
    """The user's confirmations for one project: digests by path. `trust`: given by `ferrule trust`, or by
    `config.toml` as long as its entry stands, or revoked."""

    project: str
    trust: Literal["given", "wished", "revoked"]
    files: dict[str, str] = {}

    def trusts(self, wish: Wish) -> bool:
        """Return whether the project's files are read, given the `wish` in `config.toml`."""
        return self.trust == "given" or (self.trust == "wished" and wish == "trusted")


class Change(msgspec.Struct, frozen=True):
    """A file that differs from its confirmed state. `file` is None for one that is gone."""

    path: str
    how: How
    file: ProjectFile | None = None


class RecordProblem(UsageError):
    """The record of a project cannot be read or written; the text says what to do."""


class TrustRecords:
    """The trust records in one Ferrule home."""

    def __init__(self, home: str) -> None:
        self.folder = Path(home, FOLDER)

    def read(self, top: str) -> Record | None:
        """Return the project's record. Raises `RecordProblem` if it is damaged."""
        path = self._path(top)
        try:
            record = msgspec.json.decode(read_file(path, MAX_RECORD), type=Record)
        except FileNotFoundError:
            return None
        except (Unreadable, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RecordProblem(f"the record {path} of what you confirmed in {top} is damaged ({error})") from error
        if record.project != text_of(top):
            raise RecordProblem(f"the record {path} is damaged: it is not that of {top}")
        return record

    def see(self, tops: Iterable[str]) -> None:
        """Record trusted projects at first sight, before anything here can change them.

        One that does not exist is recorded without files. If nothing can be recorded, reading the project will report
        it.
        """
        for top in tops:
            if not self._path(top).exists():
                with suppress(RecordProblem):
                    self.first_sight(top, find_files(top))

    def confirm(self, top: str, shown: Iterable[Change], wish: Wish) -> None:
        """Record as confirmed exactly what the user was shown; the project is trusted from now on.

        Raises `RecordProblem` if it cannot be written. A damaged record is replaced.
        """
        with self._changing(top):
            try:
                record = self.read(top)
            except RecordProblem:
                record = None
            if record is None or not record.trusts(wish):
                record = Record(text_of(top), "wished" if wish == "trusted" else "given")
            self._write(top, record, shown)

    def revoke(self, top: str) -> None:
        """Stop trusting anything of the project. Raises `RecordProblem` if that cannot be recorded."""
        with self._changing(top):
            self._put(top, Record(text_of(top), "revoked"))

    def first_sight(self, top: str, found: Found) -> Record:
        """Record a project as it is, unless there is a record by now.

        Raises `RecordProblem` if that is damaged or none can be written.
        """
        with self._changing(top):
            record = self.read(top)
            if record is None:
                record = self._write(top, Record(text_of(top), "wished"), changes(found, None))
            return record

    def all(self) -> Iterator[Record | RecordProblem]:
        """Yield every record, or the problem of a damaged one."""
        for path in sorted(self.folder.glob("*.json")):
            try:
                yield msgspec.json.decode(read_file(path, MAX_RECORD), type=Record)
            except (FileNotFoundError, Unreadable, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                yield RecordProblem(f"the record {path} is damaged ({error})")

    @contextmanager
    def _changing(self, top: str) -> Iterator[None]:
        try:
            with self._locked():
                yield
        except OSError as error:
            raise RecordProblem(f"what you confirm of {top} cannot be recorded in {self.folder} ({error})") from error

    def _path(self, top: str) -> Path:
        return self.folder / f"{hashlib.sha256(os.fsencode(top)).hexdigest()[:32]}.json"

    def _write(self, top: str, known: Record, shown: Iterable[Change]) -> Record:
        files = dict(known.files)
        for change in shown:
            if change.file is None:
                files.pop(change.path, None)
            else:
                files[change.path] = change.file.digest
        return self._put(top, msgspec.structs.replace(known, files=files))

    def _put(self, top: str, record: Record) -> Record:
        path = self._path(top)
        temporary = path.with_suffix(".tmp")  # one name: only the holder of the lock writes
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        return record

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not lock_patiently(descriptor, LOCK_SECONDS):
                raise TimeoutError(f"another program has held its lock for {LOCK_SECONDS:g} seconds")
            yield
        finally:
            os.close(descriptor)


def changes(found: Found, record: Record | None) -> tuple[Change, ...]:
    """Return the differences from the record: files that are new, changed or gone. None: all are new."""
    known: Mapping[str, str] = {} if record is None else record.files
    here = {text_of(file.path): file for file in found.files}
    not_as_known = [
        Change(path, "changed" if path in known else "new", file)
        for path, file in here.items()
        if known.get(path) != file.digest
    ]
    return (*not_as_known, *(Change(path, "gone") for path in known if path not in here))


class ProjectReading(msgspec.Struct, frozen=True, kw_only=True):
    """The files read of a project. `unconfirmed` is what the user would be asked about. `programs_hold`: the programs
    that its hooks may start match their confirmed state."""

    top: str
    trusted: bool = False
    files: tuple[ProjectFile, ...] = ()
    unconfirmed: tuple[Change, ...] = ()
    programs_hold: bool = True
    warnings: tuple[str, ...] = ()


def read_project(top: str, home: str, wish: Wish) -> ProjectReading:
    """Read the confirmed files of the project at `top` (a real path)."""
    if wish == "untrusted" or os.path.realpath(Path(top, PROJECT_FOLDER)) == os.path.realpath(home):
        return ProjectReading(top=top)
    found, records = find_files(top), TrustRecords(home)
    try:
        record = records.read(top)
        if record is None and wish == "trusted":
            record = records.first_sight(top, found)
    except RecordProblem as problem:
        warning = f"{problem}; nothing of the project is read before {_trust_command(top)} has recorded it anew"
        return ProjectReading(top=top, unconfirmed=changes(found, None), warnings=(warning,))
    if record is None or not record.trusts(wish):
        unconfirmed = changes(found, None)
        return ProjectReading(top=top, unconfirmed=unconfirmed, warnings=_not_trusted(top, unconfirmed))
    unconfirmed = changes(found, record)
    waiting = {change.path for change in unconfirmed}
    doubtful = [*(change.path for change in unconfirmed), *(problem.path for problem in found.problems)]
    return ProjectReading(
        top=top,
        trusted=True,
        files=tuple(file for file in found.files if text_of(file.path) not in waiting),
        unconfirmed=unconfirmed,
        programs_hold=not any(map(is_program, doubtful)),
        warnings=(*_passed_over(top, found), *_not_confirmed(top, unconfirmed)),
    )


def _not_trusted(top: str, unconfirmed: tuple[Change, ...]) -> tuple[str, ...]:
    if not unconfirmed:
        return ()
    names = _listed([change.path for change in unconfirmed])
    why = "because you have not trusted this project"
    return (f"{names} in {top}: not read, {why}; {_trust_command(top)} shows what is in it and trusts it",)


def _not_confirmed(top: str, unconfirmed: tuple[Change, ...]) -> Iterator[str]:
    waiting = [f"{change.path} ({change.how})" for change in unconfirmed if change.file is not None]
    if waiting:
        why = "because you have not confirmed what is in it now"
        yield f"{_listed(waiting)} in {top}: not read, {why}; {_trust_command(top)} shows it and confirms it"
    gone = [change.path for change in unconfirmed if change.path.endswith(_NARROWING)]
    if gone and not waiting:
        yield f"{_listed(gone)} in {top}: gone since you confirmed it; {_trust_command(top)} takes note of that"


def _passed_over(top: str, found: Found) -> Iterator[str]:
    return (f"{os.path.join(top, problem.path)} {problem.text}; it is passed over" for problem in found.problems)


def _listed(names: list[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _trust_command(top: str) -> str:
    return f"`ferrule trust -C {shlex.quote(top)}`"


def text_of(path: str) -> str:
    """Return the path as text that JSON can hold; bytes that are not UTF-8 become escapes."""
    return os.fsencode(path).decode(errors="backslashreplace")
