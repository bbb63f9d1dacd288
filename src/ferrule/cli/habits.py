"""Flags that people bring from Codex and Claude Code: some work, the others are answered with our word for them."""

import argparse
from collections.abc import Sequence

from ferrule.protocol.errors import UsageError

ANSWERS = {
    "-p": "a prompt needs no flag, as in `ferrule exec PROMPT`; a tool profile is --profile NAME",
    "--print": "a prompt needs no flag, as in `ferrule exec PROMPT`",
    "--continue": "use `ferrule exec resume --last PROMPT`",
    "--resume": "use `ferrule exec resume ID PROMPT`",
    "--output-format": "use --json for events, one per line",
    "--input-format": "a prompt is an argument, or `-` for standard input",
    "--experimental-json": "use --json",
    "--verbose": "use --json to see every event",
    "--permission-mode": "use -s MODE (sandbox) and -a POLICY (approvals)",
    "--allowedTools": """use -c 'tools=["NAME", ...]'""",
    "--allowed-tools": """use -c 'tools=["NAME", ...]'""",
    "--disallowedTools": """use -c 'tools=["NAME", ...]' with those that are allowed""",
    "--disallowed-tools": """use -c 'tools=["NAME", ...]' with those that are allowed""",
    "--append-system-prompt": "put it into AGENTS.md, or replace all instructions with -c instructions=TEXT",
    "--system-prompt": "use -c instructions=TEXT",
    "--mcp-config": "use `ferrule mcp add`, or .mcp.json in the project",
    "--local-provider": "use --oss (Ollama), or --base-url URL",
    "--max-budget-usd": "use --cost-budget AMOUNT, with [prices.MODEL] in config.toml",
    "--max-tokens": "use --max-output-tokens N for one answer, or --token-budget N for the whole run",
    "--color": "set NO_COLOR=1 for no colours",
    "--search": "use -c web_search=live",
    "--enable": "use -c features.NAME=true",
    "--disable": "use -c features.NAME=false",
}
"""What a flag of theirs is called here."""

OLLAMA = "model_provider=ollama"


def add_habits(parser: argparse.ArgumentParser) -> None:
    """Add the flags of others that work here as they do there."""
    hidden = argparse.SUPPRESS
    parser.add_argument("--full-auto", action="store_true", help=hidden)
    parser.add_argument(
        "--yolo",
        "--dangerously-bypass-approvals-and-sandbox",
        "--dangerously-skip-permissions",
        dest="yolo",
        action="store_true",
        help=hidden,
    )
    parser.add_argument("--oss", action="store_true", help=hidden)
    parser.add_argument("--skip-git-repo-check", action="store_true", help=hidden)


def translate(options: argparse.Namespace) -> None:
    """Put their meaning into our flags; a flag of ours beside one of theirs counts."""
    if options.yolo:
        options.sandbox = options.sandbox or "danger-full-access"
        options.approval = options.approval or "never"
    elif options.full_auto:
        options.sandbox = options.sandbox or "workspace-write"
    if options.oss:
        options.assignments.insert(0, OLLAMA)


def answer_habits(arguments: Sequence[str]) -> None:
    """Raise `UsageError` with our word for a flag of others that does not exist here."""
    for word in arguments:
        if word == "--":
            return
        flag = word.partition("=")[0]
        if flag in ANSWERS:
            raise UsageError(f"there is no {flag} here: {ANSWERS[flag]}")
