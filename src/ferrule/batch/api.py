"""`ferrule.batch.run`: a batch in a program."""

import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any

import msgspec

from ferrule.batch.run import DEFAULT_WORKERS, Batch
from ferrule.batch.tasks import lines_of, open_tasks
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import SandboxPolicy
from ferrule.protocol.settings import ProviderSettings, ReasoningEffort
from ferrule.protocol.specs import Wire
from ferrule.session.agent import Agent

SHOWN_BAD = 10
"""Bad tasks that an error tells of."""


async def run(  # noqa: PLR0913 - as `Agent`
    tasks: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int = DEFAULT_WORKERS,
    model: str | None = None,
    base_url: str | None = None,
    wire: Wire | None = None,
    provider: ProviderSettings | None = None,
    api_key: str | None = None,
    tools: Sequence[str] | None = None,
    sandbox: str | SandboxPolicy | None = None,
    instructions: str | None = None,
    reasoning_effort: ReasoningEffort | None = None,
    temperature: float | None = None,
    max_output_tokens: int | None = None,
    max_turns: int | None = None,
    max_tokens: int | None = None,
    ray: str | None = None,
) -> AsyncGenerator[dict[str, Any], None]:
    """Do tasks, `workers` at a time, and yield the result of each as it ends.

    `tasks` are dicts, or a file with one JSON object a line; fields and results are those of docs/batch.md, and the
    other arguments those of `Agent`, for tasks that do not say otherwise. Nobody is asked: what the sandbox forbids is
    refused. With `out`, results are kept in that file, and a later run goes on where this one stopped: it yields those
    that are there first. `ray` is the address of a Ray cluster that does them. Raises `UsageError` for a bad task,
    before anything starts, and `FerruleError` where the batch cannot go on.
    """
    agent = Agent(
        model,
        tools=tools,
        sandbox=sandbox,
        approval_policy="never",
        instructions=instructions,
        base_url=base_url,
        wire=wire,
        provider=provider,
        reasoning_effort=reasoning_effort,
        max_turns=max_turns,
        token_budget=max_tokens,
        temperature=temperature,
        max_output_tokens=max_output_tokens,
    )
    settings = msgspec.structs.replace(agent.settings, tools=None if tools is None else tuple(tools))
    with closing(Batch(settings, out, workers=workers, api_key=api_key, ray=ray)) as batch:
        if isinstance(tasks, str | os.PathLike):
            with open_tasks(tasks) as file:
                batch.prepare(lines_of(file), os.path.dirname(os.path.abspath(tasks)))
        else:
            batch.prepare(_lines_of(tasks), os.getcwd())
        if batch.bad:
            more = len(batch.bad) - SHOWN_BAD
            raise UsageError("; ".join([*batch.bad[:SHOWN_BAD], *([f"and {more} more"] if more > 0 else [])]))
        for line in batch.earlier():
            yield msgspec.json.decode(line)
        async with aclosing(batch.lines()) as lines:
            async for line in lines:
                yield msgspec.json.decode(line)


def _lines_of(tasks: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, bytes]]:
    """Yield dicts as lines of a file, with their numbers."""
    for number, task in enumerate(tasks, 1):
        try:
            yield number, msgspec.json.encode(task, enc_hook=_path)
        except (TypeError, UnicodeEncodeError, RecursionError) as error:
            raise UsageError(f"line {number}: no JSON ({error})") from error


def _path(value: object) -> str:
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
