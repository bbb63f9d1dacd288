"""A team of agents answers a question about a project: one plans, the members look beside each other, one writes.

    python examples/team.py -C ~/src/app "What would break if we moved from SQLite to PostgreSQL?"

The members are sub-agents of a session: they have its rights (here they only read), what they find reaches its model by
itself, and what they use counts in its budget. When the budget is used up, what was found so far is printed.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from ferrule import ActionEvent, Agent, BudgetSpent, ChildEvent, FerruleError, UsageError

BUDGET = 500_000
"""Tokens, input and output of all requests of all agents."""

PLAN = """\
A team of up to four agents will answer this question about the project that you are in. They can read it, and work
beside each other. Look at how the project is laid out, then divide the work into parts that do not overlap; fewer are
better.

The question: {question}"""

PART = """\
You are one of a team that answers this question about the project that you are in: {question}

Your part: {task}

Look for yourself; say what you found, with paths and lines, and what you are not sure of. At most 30 lines."""

WRITE = """\
The team has reported. Answer the question from its reports, name the files that prove it, and say what is still open.
Where reports contradict each other, look for yourself.

The question: {question}"""


class Part(BaseModel):
    title: str = Field(description="One to three words")
    task: str = Field(description="What to find out, and where to begin")


class Plan(BaseModel):
    parts: list[Part] = Field(min_length=1, max_length=4)


def reading_agent(folder: Path, budget: int, **more: Any) -> Agent:
    return Agent(
        os.environ.get("OPENAI_MODEL"),
        base_url=os.environ.get("OPENAI_BASE_URL"),
        api_key=os.environ.get("OPENAI_API_KEY"),
        cwd=folder,
        sandbox="read-only",
        token_budget=budget,
        **more,
    )


async def answer(question: str, folder: Path, budget: int) -> bool:
    """Print the answer. Return whether there is one."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    planned = await reading_agent(folder, budget, output_type=Plan).run(PLAN.format(question=question))
    parts: list[Part] = planned.output.parts
    titles: dict[str, str] = {}

    def show_progress(event: object) -> None:
        if isinstance(event, ChildEvent) and isinstance(event.event, ActionEvent):
            action = event.event.action.model_dump_json(exclude_unset=True)
            print(f"· {titles.get(event.thread_id, '')}: {event.event.tool_name} {action}"[:110], file=sys.stderr)

    left = max(budget - planned.usage.total_tokens, 1)
    async with await reading_agent(folder, left, on_event=show_progress).open() as session:
        members = [await session.spawn(PART.format(question=question, task=part.task)) for part in parts]
        titles |= {member.id: part.title for member, part in zip(members, parts, strict=True)}
        ends = await asyncio.gather(*(member.wait() for member in members))
        for part, member, end in zip(parts, members, ends, strict=True):
            print(f"{part.title:<24} {end.state:<12} {member.usage.total_tokens:>10,} tokens")
        try:
            print("\n" + (await session.run(WRITE.format(question=question))).text)
        except BudgetSpent as error:
            for part, end in zip(parts, ends, strict=True):
                print(f"\n{part.title}: {end.text}")
            print(f"team: {error}", file=sys.stderr)
            return False
        finally:
            print(f"\n{planned.usage.total_tokens + session.usage.total_tokens:,} of {budget:,} tokens")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Let a team of agents answer a question about a project.")
    parser.add_argument("question")
    parser.add_argument("-C", dest="folder", type=Path, default=Path(), help="the project (the current folder)")
    parser.add_argument("--budget", type=int, default=BUDGET, help=f"tokens for all agents together ({BUDGET})")
    args = parser.parse_args()
    try:
        return 0 if asyncio.run(answer(args.question, args.folder, args.budget)) else 1
    except FerruleError as error:
        print(f"team: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
