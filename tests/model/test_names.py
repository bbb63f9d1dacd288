# ruff: noqa: E501 - rows of tables read better in one line
"""Names and ids of calls, and the text of freeform tools behind functions."""

import json
import logging
import random

import pytest

from ferrule.model import freeform
from ferrule.model.adapt import adapt_tools
from ferrule.model.names import Callee, CallIds, CallNames
from ferrule.model.profiles import load_profiles
from ferrule.protocol.specs import NamespaceTool, ToolSpec
from tests.model.support import freeform as freeform_tool
from tests.model.support import function

GITHUB = NamespaceTool(name="mcp__gh", description="", tools=(function("create_issue"), function("list_issues")))
OTHER = NamespaceTool(name="mcp__lab", description="", tools=(function("list_issues"),))
DECLARED: tuple[ToolSpec, ...] = (
    function("shell"), function("exec_command"), function("mcp__files__read_text"), freeform_tool("apply_patch"), GITHUB, OTHER,
)  # fmt: skip


def names(provider: str = "openai") -> CallNames:
    server = load_profiles().providers[provider]
    return adapt_tools(DECLARED, server, "responses" if provider == "openai" else "chat").names


@pytest.mark.parametrize("provider", ["openai", "generic"])
@pytest.mark.parametrize(
    ("called", "declared"),
    [
        ("shell", "shell"),
        ("shell\n", "shell"),
        (" shell ", "shell"),
        ("functions.exec_command", "exec_command"),
        ("default_api.shell", "shell"),
        ("tools.shell", "shell"),
        ("functions:shell", "shell"),
        ("Shell", "shell"),
        ("EXEC_COMMAND", "exec_command"),
        ("container.exec", "shell"),
        ("create_issue", "mcp__gh__create_issue"),
        ("mcp__gh__create_issue", "mcp__gh__create_issue"),
        ("read_text", "mcp__files__read_text"),
        ("mcp__files__read", "mcp__files__read_text"),
        ("exec_comm", "exec_command"),
        ("apply_patch", "apply_patch"),
    ],
)
def test_b086_a_name_that_can_mean_one_tool_means_it(called: str, declared: str, provider: str) -> None:
    callee = names(provider).resolve(called)
    assert callee is not None
    assert callee.flat == declared
    assert callee.kind == ("custom_tool_call" if declared == "apply_patch" else "function_call")


@pytest.mark.parametrize("called", ["list_issues", "she", "exec", "bash", "", "shellshell", "mcp__lab__create_issue"])
def test_b086_a_name_that_could_mean_more_or_none_means_none(called: str) -> None:
    assert names().resolve(called) is None


def test_namespaces_are_told_apart() -> None:
    assert names().resolve("list_issues", "mcp__lab") == Callee("list_issues", "mcp__lab")
    assert names().resolve("shell", "functions") == Callee("shell")
    assert names().resolve("create_issue", "mcp__lab") is None


def test_b086_what_was_accepted_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ferrule.model"):
        names().resolve("functions.shell")
        names().resolve("exec_command")
    assert [record.getMessage() for record in caplog.records] == [
        "the call of 'functions.shell' is taken as one of 'shell'"
    ]


def test_b082_the_first_keeps_its_id_and_the_suffix_is_stable() -> None:
    def run() -> list[str]:
        ids = CallIds(lambda: ["shell:0", "shell:0_2"], frozenset(), lambda: "n")
        return [ids.unique(call_id) for call_id in ("shell:0", "shell:1", "shell:1", "shell:1", None, None)]

    assert run() == ["shell:0_3", "shell:1", "shell:1_2", "shell:1_3", "call_n", "call_n_2"]
    assert run() == run()


TEXTS = [
    "",
    "a",
    'quote " and \\ back',
    "line\nline\t\r\b\f",
    "ü🔧\u2028\x00\x7f",
    "/\\/",
    "*** Begin Patch\n+x\n*** End Patch\n",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_in_arguments_is_the_same_in_every_split(text: str, ascii_only: bool) -> None:
    chance = random.Random(text)
    for spaces in ((", ", ": "), (",", ":"), (",\n", " :\n ")):
        arguments = json.dumps({"input": text}, ensure_ascii=ascii_only, separators=spaces)
        assert freeform.unwrap(arguments) == text
        for _ in range(20):
            reader = freeform.TextInArguments()
            cuts = sorted(chance.sample(range(len(arguments) + 1), 5))
            pieces = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
            assert "".join(reader.feed(piece) for piece in pieces) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"patch":"p"}', "p"),
        ('"p"', "p"),
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"input":"a\nb"}', "a\nb"),
        ('{"a":"x","b":"y"}', '{"a":"x","b":"y"}'),
        ('{"input":"cut', '{"input":"cut'),
        ("{}", "{}"),
    ],
)
def test_arguments_of_another_shape_are_the_text_or_reach_the_tool_whole(arguments: str, text: str) -> None:
    assert freeform.unwrap(arguments) == text


def test_wrapping_is_undone_by_unwrapping() -> None:
    for text in TEXTS:
        assert freeform.unwrap(freeform.wrap(text)) == text
    assert freeform.unwrap(freeform.wrap("lone \ud83d")) == "lone \ufffd"
