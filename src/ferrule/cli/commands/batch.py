"""`ferrule batch`: a file of tasks, a file of results."""

import argparse
import asyncio
import os
import sys
from contextlib import closing, redirect_stdout
from pathlib import Path

import msgspec

from ferrule.batch.run import DEFAULT_WORKERS, Batch
from ferrule.batch.tasks import lines_of, open_tasks
from ferrule.cli.exit_codes import DONE, FAILED, INTERRUPTED
from ferrule.cli.habits import add_habits, translate
from ferrule.cli.options import (
    NOBODY_TO_ASK,
    Parser,
    add_config_flag,
    add_limit_flags,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    configuration,
    schema_in,
)
from ferrule.cli.running import Interrupted, run_interruptibly
from ferrule.doors.headless.batch import FRAME, BatchView
from ferrule.doors.headless.terminal import Terminal
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.settings import Settings
from ferrule.sandbox.environment import refuse_nesting

EPILOG = """\
TASKS has one JSON object a line: id and prompt, and if they are wanted repository or folder, image, model, tools,
sandbox, max_turns, max_tokens, max_seconds and check. RESULTS gets one line a task. The same command goes on where it
was stopped, however that was. docs/batch.md says more.
exit codes: 0 every task has a result, 1 a line was no task or a result is an error, 2 wrong usage or configuration,
130 interrupted"""
GO_ON = "the same command goes on"
STDIN = "-"


def main(arguments: list[str]) -> int:
    """Do the tasks."""
    options = _parser().parse_args(arguments)
    translate(options)
    settings = _settings(options)
    out = Terminal.on(sys.stderr)
    # Ray tells on standard output of actors that died.
    with out.for_stderr(), redirect_stdout(sys.stderr), closing(_batch(settings, options)) as batch:
        view = BatchView(out, batch.progress)
        for bad in batch.bad:
            view.say(bad)
        try:
            run_interruptibly(_run(batch, view))
        except UsageError:
            raise
        except (Interrupted, FerruleError) as error:
            view.close()
            view.say(f"{f'{error}; ' if str(error) else 'interrupted: '}{GO_ON}")
            return INTERRUPTED if isinstance(error, Interrupted) else FAILED
        view.close()
    return FAILED if batch.bad or batch.progress.errors else DONE


def _parser() -> Parser:
    parser = Parser("batch", "Do the tasks of a file, many at a time, and write one result for each.")
    parser.usage = "ferrule batch TASKS --out RESULTS [OPTION]..."
    parser.epilog = EPILOG
    parser.add_argument("tasks", metavar="TASKS", help="the file of tasks; `-` reads standard input")
    parser.add_argument("-o", "--out", metavar="RESULTS", required=True, help="the file of results; it is appended to")
    parser.add_argument(
        "-n", "--workers", type=int, metavar="N", default=DEFAULT_WORKERS,
        help=f"how many tasks are done at a time, with one request each (default {DEFAULT_WORKERS})",
    )  # fmt: skip
    parser.add_argument("--ray", metavar="ADDRESS", help="do them on this Ray cluster; `local` starts one here")
    add_model_flags(parser)
    add_profile_flag(parser)
    add_rights_flags(parser, directory=False)
    add_limit_flags(parser)
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end a task after this time")
    parser.add_argument("--turn-timeout", type=float, metavar="SECONDS", help="end the turn of a task after this time")
    parser.add_argument("--output-schema", metavar="FILE", help="a JSON schema of the last messages")
    add_config_flag(parser)
    add_habits(parser)
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    """Return the settings of all tasks. No project has a say: each task is in a workspace of its own."""
    settings = configuration(options, NOBODY_TO_ASK, cwd=os.sep).settings
    if options.output_schema is not None:
        settings = msgspec.structs.replace(settings, output_schema=schema_in(options.output_schema))
    refuse_nesting(settings)
    return settings


def _batch(settings: Settings, options: argparse.Namespace) -> Batch:
    """Read the tasks, and the results that are there."""
    given: str = options.tasks
    if given != STDIN and os.path.isfile(given) and Path(options.out).exists() and os.path.samefile(given, options.out):
        raise UsageError(f"--out: {options.out} is the file of the tasks; name another one")
    batch = Batch(settings, options.out, workers=options.workers, ray=options.ray)
    try:
        if given == STDIN:
            batch.prepare(lines_of(sys.stdin.buffer), os.getcwd())
        else:
            with open_tasks(given) as file:
                batch.prepare(lines_of(file), os.path.dirname(os.path.abspath(given)))
    except BaseException:
        batch.close()
        raise
    return batch


async def _run(batch: Batch, view: BatchView) -> None:
    showing = asyncio.create_task(_show(view))
    try:
        async for line in batch.lines():
            view.result(line)
    finally:
        showing.cancel()


async def _show(view: BatchView) -> None:
    while True:
        view.tick()
        await asyncio.sleep(FRAME)
