"""What our reader of git's configuration says of any text, git says too. `scripts/fuzz` runs this for longer."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.git.config import ConfigError, decode_config, parse_config

EXAMPLES = int(os.environ.get("FERRULE_FUZZ_EXAMPLES", "60"))
settings.register_profile(
    "git", max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
fuzzed = settings(settings.get_profile("git"))

FRAGMENTS = [
    b"[core]", b"[a.B]", b'[remote "x.y"]', b'[a.b "C"]',
    b'[a\t"\\"\\\\q"]', b'[a "b" ]', b"[ a]", b"[]", b'[core "n\0"]',
    b"key", b"k-1", b"bare", b" = ", b"=", b"value", b'"', b'" "', b"\\", b"\\n", b"\\x", b"\\\n", b"\n", b"\r\n",
    b"\r", b"\t", b"  ", b"#", b";", b"\0", b"\xc2\xa0", b"\xff", b"\x0b", b"\x0c", b"\xe2\x80\xa8", b"\xef\xbb\xbf",
    b".", b"]",
]  # fmt: skip
LINES = st.builds(
    lambda header, lines: header + b"".join(b"\n" + line for line in lines) + b"\n",
    st.sampled_from([b"[a]", b'[A "b"]', b"[a.B]", b"\xef\xbb\xbf[a]", b'[core "n\0"]']),
    st.lists(
        st.builds(lambda parts: b"k = " + b"".join(parts), st.lists(st.sampled_from(FRAGMENTS[9:-2]), max_size=8)),
        max_size=4,
    ),
)
TEXTS = st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map(b"".join), LINES)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "config"


def read_by_git(file: Path) -> list[tuple[str, str]] | None:
    """None for what git refuses."""
    done = subprocess.run(
        ["git", "config", "--file", str(file), "--no-includes", "--list", "-z"], capture_output=True, check=False
    )
    if done.returncode:
        return None
    pairs = (os.fsdecode(entry).partition("\n") for entry in done.stdout.split(b"\0") if entry)
    return [(key, value if newline else "true") for key, newline, value in pairs]


def read_by_us(content: bytes) -> Iterator[tuple[str, str]]:
    # Older versions of git make one space of each white space inside of a value.
    return ((entry.key, entry.value) for entry in parse_config(decode_config(content)))


def with_plain_blanks(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(key, value.replace("\t", " ").replace("\r", " ")) for key, value in pairs]


@fuzzed
@given(content=TEXTS)
def test_any_text_is_read_as_git_reads_it_or_refused(file: Path, content: bytes) -> None:
    """What we refuse is told as unreadable; what git refuses runs nothing."""
    file.write_bytes(content)
    theirs = read_by_git(file)
    try:
        ours = list(read_by_us(content))
    except ConfigError:
        return
    if theirs is not None:
        assert with_plain_blanks(ours) == with_plain_blanks(theirs)
