"""Any input ends in success or in one error, and an error changes nothing. `scripts/fuzz` runs these for longer."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ferrule.patch import MAX_MESSAGE, ParseError, Patch, PatchError, PatchParser, apply_patch, parse
from ferrule.patch.diff import compare
from ferrule.patch.invocation import find_patch_in_script
from ferrule.patch.text import Text
from tests.patch.tree import snapshot, update

EXAMPLES = int(os.environ.get("FERRULE_FUZZ_EXAMPLES", "60"))
settings.register_profile(
    "patch", max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
fuzzed = settings(settings.get_profile("patch"))

HEADERS = st.sampled_from(["*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "])
NAMES = st.sampled_from(["a", "b", "d/c", "d/e/f", "link", "..", ".", "a/x", "é", "d", "x\0y", "new"])
LINES = st.sampled_from(["x", "y", "", " x", "x ", "\tx", "x – y", "e\u0301", "é", "\ufeffx", "\udcff", "x\r"])
FRAGMENTS = st.one_of(
    st.sampled_from(
        [
            "*** Begin Patch",
            "*** End Patch",
            " *** End Patch",
            "*** End of File",
            "@@",
            "@@ x",
            "<<EOF",
            "EOF",
            "*** Environment ID: e",
            "",
            "  ",
            "\ud800",
        ]
    ),
    st.builds(
        str.__add__,
        st.sampled_from(["*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "]),
        NAMES,
    ),
    st.builds(str.__add__, st.sampled_from(["+", "-", " ", ""]), LINES),
)
SCRIPTS = st.lists(FRAGMENTS, max_size=25).map("\n".join)
RAW = st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape"))
SIGNED = st.tuples(st.sampled_from(" -+"), st.sampled_from(["x", "y", "z", "", "\tx", "é"]))
CONTENTS = st.builds(
    lambda lines, end, last, bom: (
        (b"\xef\xbb\xbf" if bom else b"")
        + end.join(line.encode("utf-8", "surrogateescape") for line in lines)
        + (end if lines and last else b"")
    ),
    st.lists(LINES, max_size=8),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.booleans(),
)


def parsed(text: str) -> Patch | str:
    try:
        return parse(text)
    except ParseError as error:
        return short(error)


def short(error: PatchError) -> str:
    """The text of an error, which a model must be able to afford."""
    assert len(str(error)) <= MAX_MESSAGE
    return str(error)


@fuzzed
@given(
    st.one_of(
        SCRIPTS,
        st.text(max_size=200),
        st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape")),
    )
)
def test_any_text_parses_or_is_refused(text: str) -> None:
    parsed(text)
    with suppress(PatchError):
        find_patch_in_script(text)


@fuzzed
@given(SCRIPTS, st.data())
def test_pieces_parse_like_the_whole(text: str, data: st.DataObject) -> None:
    parser = PatchParser()
    at = 0
    while at < len(text):
        step = data.draw(st.integers(1, 30))
        parser.feed(text[at : at + step])
        at += step
    try:
        result: Patch | str = parser.finish()
    except ParseError as error:
        result = str(error)
    assert result == parsed(text)


@fuzzed
@given(CONTENTS)
def test_a_text_gives_its_bytes_back(data: bytes) -> None:
    assert Text.read(data).write() == data


@fuzzed
@given(CONTENTS, CONTENTS)
def test_compared_texts_differ_by_their_edits(before: bytes, after: bytes) -> None:
    old, new = Text.read(before), Text.read(after)
    assume(old.newline == new.newline)  # another newline changes every line, and edits keep the old one
    edits = compare(old, new)
    assert old.edited(edits, terminated=new.terminated).lines == new.lines


@fuzzed
@given(
    st.lists(st.tuples(st.sampled_from(" -+"), st.sampled_from(["x", "y", "z", "", "\tx", "é"])), max_size=12),
    st.booleans(),
)
def test_a_hunk_over_the_whole_file_does_what_it_says(signed: list[tuple[str, str]], crlf: bool) -> None:
    end = "\r\n" if crlf else "\n"
    before = "".join(text + end for sign, text in signed if sign != "+").encode()
    after = "".join(text + end for sign, text in signed if sign != "-").encode()
    lines = [sign + text for sign, text in signed]
    if before == after or (lines and not before):
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "f").write_bytes(before)
        apply_patch(update("f", "@@", *lines), folder)
        assert Path(folder, "f").read_bytes() == after


class AnyPatches(RuleBasedStateMachine):
    """Patches of all kinds, whole and cut, on one tree."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name, "root")
        self.root.mkdir()
        (self.root / "link").symlink_to("a")
        (self.root / "dead").symlink_to("nowhere")

    def teardown(self) -> None:
        self.folder.cleanup()

    @initialize(files=st.dictionaries(st.sampled_from(["a", "b", "d/c"]), CONTENTS))
    def write(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    @rule(body=st.lists(FRAGMENTS, max_size=12), overwrite=st.booleans())
    def whole(self, body: list[str], overwrite: bool) -> None:
        self.attempt("\n".join(("*** Begin Patch", *body, "*** End Patch")), overwrite)

    @rule(name=st.sampled_from(["a", "b", "d/c", "link"]), to=st.none() | NAMES, data=st.data())
    def fitting(self, name: str, to: str | None, data: st.DataObject) -> None:
        path = self.root / name
        lines = Text.read(path.read_bytes()).contents() if path.is_file() else []
        start = data.draw(st.integers(0, len(lines)))
        run = lines[start : start + data.draw(st.integers(0, 3))]
        body = [data.draw(st.sampled_from(" -")) + line for line in run]
        body.insert(data.draw(st.integers(0, len(body))), "+" + data.draw(LINES))
        head = [f"*** Update File: {name}", *([f"*** Move to: {to}"] if to else [])]
        text = "\n".join(("*** Begin Patch", *head, "@@", *body, "*** End Patch"))
        self.attempt(text[: data.draw(st.integers(0, len(text)) | st.just(len(text)))], data.draw(st.booleans()))

    def attempt(self, text: str, overwrite: bool) -> None:
        before = snapshot(self.root.parent)
        try:
            apply_patch(text, str(self.root), overwrite=overwrite)
        except PatchError as error:
            short(error)
            assert snapshot(self.root.parent) == before

    @invariant()
    def leaves_nothing_beside(self) -> None:
        assert not [name for name in snapshot(self.root.parent) if ".ferrule-" in name]


TestAnyPatches = AnyPatches.TestCase
TestAnyPatches.settings = settings(
    settings.get_profile("patch"), max_examples=max(EXAMPLES // 3, 1), stateful_step_count=15
)
