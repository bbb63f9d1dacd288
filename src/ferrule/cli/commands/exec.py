"""`ferrule exec`: one task, no questions, an exit code."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from ferrule.cli.exporting import exporting
from ferrule.cli.habits import add_habits, answer_habits, translate
from ferrule.cli.options import (
    NOBODY_TO_ASK,
    Parser,
    add_config_flag,
    add_limit_flags,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    configuration,
    read_given,
    schema_in,
    split_command,
)
from ferrule.cli.resuming import resumed
from ferrule.cli.running import Interrupted, run_interruptibly
from ferrule.doors.headless.human import Human, is_one_place
from ferrule.doors.headless.jsonl import INTERRUPTED, JsonLines
from ferrule.doors.headless.running import run_turn
from ferrule.doors.headless.terminal import Terminal
from ferrule.prompts import expand_prompt
from ferrule.protocol.content import InputText
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.sandbox.environment import refuse_nesting
from ferrule.session.images import image_of
from ferrule.session.result import TurnResult
from ferrule.session.rollout import StoredSession
from ferrule.session.session import Prompt

EPILOG = """\
`exec resume ID PROMPT` and `exec resume --last PROMPT` go on with an earlier session, in its directory and with its
rights unless you give others. ID is a session's id, its beginning, its name, or the path of a session file, also one of
Codex. A PROMPT `/prompts:NAME ARGUMENTS` stands for your FERRULE_HOME/prompts/NAME.md. What happens goes to standard
error, the last message to standard output.
exit codes: 0 done, 1 the work failed, 2 wrong usage or configuration, 130 interrupted"""


class _Job(msgspec.Struct, frozen=True):
    settings: Settings
    prompt: Prompt
    stored: StoredSession | None = None


def main(arguments: list[str]) -> int:
    """Run one turn."""
    own, words = split_command(arguments)
    answer_habits(own)
    options = _parser().parse_intermixed_args(own)
    options.words += words
    translate(options)
    lines = JsonLines(sys.stdout.buffer) if options.json else None
    view: Human | JsonLines | None = lines
    try:
        job = _job(options)
        refuse_nesting(job.settings)
        out = Terminal.on(sys.stderr)
        view = lines or Human(out, job.settings)
        with out.for_stderr(), exporting(job.settings.otel):
            result = run_interruptibly(run_turn(job.settings, view, job.prompt, job.stored))
            view.finish()
    except (FerruleError, Interrupted) as error:
        if view is not None:
            view.fail(str(error) or INTERRUPTED)
        raise
    except BrokenPipeError:
        raise
    except Exception as fault:
        if view is not None:
            view.fail(f"internal error: {fault!r}")
        raise
    _hand_over(result, options)
    return 0


def _parser() -> Parser:
    parser = Parser("exec", "Do one task without asking, and exit.")
    parser.usage = "ferrule exec [OPTION]... PROMPT|-\n       ferrule exec [OPTION]... resume ID|--last PROMPT|-"
    parser.epilog = EPILOG
    parser.add_argument("words", nargs="*", metavar="PROMPT", help="what to do; `-` reads it from standard input")
    parser.add_argument("--last", action="store_true", help="with `resume`: the newest session of this directory")
    parser.add_argument("--all", action="store_true", help="with `resume --last`: of any directory")
    add_model_flags(parser)
    add_profile_flag(parser)
    add_rights_flags(parser)
    parser.add_argument("-i", "--image", metavar="FILE", action="append", default=[], help="an image for the prompt")
    add_limit_flags(parser)
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end the run after this time")
    parser.add_argument("--turn-timeout", type=float, metavar="SECONDS", help="end the turn after this time")
    parser.add_argument("--output-schema", metavar="FILE", help="a JSON schema of the last message")
    parser.add_argument("--json", action="store_true", help="print events as JSON, one per line")
    parser.add_argument("--raw", action="store_true", help="print the last message with its control characters")
    parser.add_argument(
        "-o", "--output-last-message", dest="output", metavar="FILE", help="write the last message to FILE"
    )
    parser.add_argument("--ephemeral", action="store_true", help="keep nothing of the session on disk")
    add_config_flag(parser)
    add_habits(parser)
    return parser


def _job(options: argparse.Namespace) -> _Job:
    """Build the job. Every possible mistake of the user is reported here, before anything happens."""
    words: list[str] = options.words
    resume = bool(words) and words[0] == "resume"
    if options.last and not resume:
        raise UsageError("--last belongs to `ferrule exec resume --last PROMPT`")
    if options.all and not options.last:
        raise UsageError("--all belongs to `ferrule exec resume --last --all PROMPT`")
    session_id, rest = _session_and_rest(words[1:], last=options.last) if resume else (None, words)
    settings, stored = (
        resumed(options, session_id, partial(_settings, options)) if resume else (_settings(options), None)
    )
    if options.output is not None and not Path(options.output).absolute().parent.is_dir():
        raise UsageError(f"-o: the folder of {options.output} does not exist")
    if options.output_schema is not None:
        settings = msgspec.structs.replace(settings, output_schema=schema_in(options.output_schema))
    if options.ephemeral:
        settings = msgspec.structs.replace(settings, ephemeral=True)
    prompt = expand_prompt(_prompt(rest), settings.home)
    images = [image_of(read_given("-i", path), f"-i: {path}") for path in options.image]
    return _Job(settings, [*images, InputText(prompt)] if images else prompt, stored)


def _settings(options: argparse.Namespace, cwd: str | None = None) -> Settings:
    return configuration(options, NOBODY_TO_ASK, cwd=cwd).settings


def _session_and_rest(words: Sequence[str], *, last: bool) -> tuple[str | None, Sequence[str]]:
    if last:
        return None, words
    if not words:
        raise UsageError("`exec resume` needs the ID of a session, or --last")
    return words[0], words[1:]


def _prompt(words: Sequence[str]) -> str:
    if len(words) > 1:
        raise UsageError(f"expected one PROMPT, got {len(words)}: put it in quotes")
    if not words and sys.stdin.isatty():
        raise UsageError("a PROMPT is missing: say what to do, or `-` to read it from standard input")
    try:
        text = words[0] if words and words[0] != "-" else sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise UsageError("the prompt on standard input is not UTF-8 text") from error
    if not text.strip():
        raise UsageError('the prompt is empty: say what to do, as in `ferrule exec "Fix the failing test"`')
    return text


def _hand_over(result: TurnResult, options: argparse.Namespace) -> None:
    """Deliver the last message for callers that want only that: in a file, and on standard output unless shown
    already."""
    if options.output is not None:
        try:
            Path(options.output).write_text(result.text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"-o: {options.output} cannot be written: {error.strerror}") from error
    if not options.json and not is_one_place(1, 2):
        out = Terminal.on(sys.stdout)
        print(result.text if options.raw else out.answer(safe(result.text)))
