"""The grammar that models get for apply_patch, as the library reads it that servers constrain with."""

import importlib.util
from random import Random

import pytest

from ferrule.patch import GRAMMAR, ParseError, parse
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.specs import FreeformToolFormat
from ferrule.tools.grammar import InputGrammar

pytestmark = pytest.mark.skipif(importlib.util.find_spec("llguidance") is None, reason="the extra grammar")

TEXTS = ["", "x = 1", "  indented", "*** looks like a marker", "@@ too", "é ✓", "\ttab", "+plus", "-minus", " "]


@pytest.fixture(scope="module")
def grammar() -> InputGrammar:
    return InputGrammar(FreeformToolFormat("grammar", "lark", GRAMMAR))


def canonical(seed: int) -> str:
    """A patch as the format's description asks for it."""
    random = Random(seed)
    files = [random.choice([added, deleted, updated])(random, f"dir {i}/f{i}.py") for i in range(random.randint(1, 4))]
    return "*** Begin Patch\n" + "".join(files) + "*** End Patch" + random.choice(["", "\n"])


def added(random: Random, path: str) -> str:
    return f"*** Add File: {path}\n" + "".join(f"+{random.choice(TEXTS)}\n" for _ in range(random.randint(1, 4)))


def deleted(random: Random, path: str) -> str:
    return f"*** Delete File: {path}\n"


def updated(random: Random, path: str) -> str:
    move = f"*** Move to: new/{path}\n" if random.random() < 0.3 else ""
    end = "*** End of File\n" if random.random() < 0.3 else ""
    return f"*** Update File: {path}\n{move}" + "".join(hunk(random) for _ in range(random.randint(1, 3))) + end


def hunk(random: Random) -> str:
    anchor = random.choice(["@@\n", "@@ def f():\n", "@@ class A:\n@@     def f():\n"])
    lines = [f"{random.choice(' +-')}{random.choice(TEXTS)}\n" for _ in range(random.randint(0, 4))]
    return anchor + "".join(lines) + f"{random.choice('+-')}{random.choice(TEXTS)}\n"


def takes(grammar: InputGrammar, text: str) -> bool:
    try:
        grammar.check(text)
    except RespondToModel:
        return False
    return True


def parses(text: str) -> bool:
    try:
        parse(text)
    except ParseError:
        return False
    return True


def test_every_canonical_patch_is_in_the_grammar_and_is_parsed(grammar: InputGrammar) -> None:
    for seed in range(200):
        patch = canonical(seed)
        grammar.check(patch)
        parse(patch)


UPDATE = "*** Begin Patch\n*** Update File: a\n{}*** End Patch"


@pytest.mark.parametrize(
    "text",
    [
        "\n  *** Begin Patch\n*** Delete File: a\n*** End Patch  \n\n",
        "<<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF",
        "*** Begin Patch\r\n*** Delete File: a\r\n*** End Patch\r\n",
        UPDATE.format("@@\n x\n\n-y\n"),
        "*** Begin Patch\n*** End Patch",
    ],
    ids=["blanks around it", "here document", "CRLF", "empty line for an empty context line", "no files"],
)
def test_what_the_parser_forgives_and_the_grammar_does_not_offer(grammar: InputGrammar, text: str) -> None:
    assert parses(text)
    assert not takes(grammar, text)


@pytest.mark.parametrize(
    "text", [UPDATE.format(""), UPDATE.format("@@\n"), UPDATE.format("@@ a\n@@ b\n")], ids=["nothing", "@@", "anchors"]
)
def test_what_the_grammar_offers_and_the_parser_refuses(grammar: InputGrammar, text: str) -> None:
    assert takes(grammar, text)
    assert not parses(text)


@pytest.mark.parametrize(
    "text",
    [
        "*** Begin Patch\n*** Delete File: a\n",
        "*** Begin Patch\n*** Add File: a\nno sign\n*** End Patch",
        "*** Begin Patch\n*** Frobnicate File: a\n*** End Patch",
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_what_both_refuse(grammar: InputGrammar, text: str) -> None:
    assert not takes(grammar, text)
    assert not parses(text)
