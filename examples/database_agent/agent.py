"""An agent with a database, and a web page on which you allow or decline each change.

    python examples/database_agent/agent.py --sample shop.db     # a small shop to try it on
    python examples/database_agent/agent.py shop.db "Cancel the open orders of Ada Lovelace"

It reads without asking. Before it changes something, the page whose address is printed shows the SQL and how many rows
it concerns. Needs the extra `gateway` (Starlette and uvicorn).
"""

import argparse
import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from approvals import Approvals
from database import Database, tools_of
from ferrule import ActionEvent, Agent, FerruleError, UsageError

SAMPLE = Path(__file__).with_name("shop.sql")

INSTRUCTIONS = """\
You work with a SQLite database. Look before you change something, and change no more than the user asked for. Each
change is shown to a person, who may decline it: then do not try it another way; say what was not done. Answer in a few
sentences.

{schema}"""


def make_sample(path: Path) -> None:
    if path.exists():
        raise UsageError(f"{path} is there already")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SAMPLE.read_text())


def show_progress(event: object) -> None:
    if isinstance(event, ActionEvent):
        print(f"· {event.tool_name} {event.action.model_dump_json()}", flush=True)


async def work(path: Path, task: str, port: int) -> str:
    """Let the agent do the task; return what it says."""
    if not path.is_file():
        raise UsageError(f"there is no {path}; `--sample {path}` makes one to try this on")
    database, approvals = Database(path), Approvals(task)
    agent = Agent(
        os.environ.get("OPENAI_MODEL"),
        base_url=os.environ.get("OPENAI_BASE_URL"),
        api_key=os.environ.get("OPENAI_API_KEY"),
        instructions=INSTRUCTIONS.format(schema=database.schema()),
        tools=tools_of(database),
        approval_policy="untrusted",  # asks before each call of a tool that is not marked as read-only
        on_approval=approvals.ask,
        on_event=show_progress,
    )
    async with approvals.served(port) as address:
        print(f"Allow or decline changes at {address}", flush=True)
        return (await agent.run(task)).text


def main() -> int:
    parser = argparse.ArgumentParser(description="Work on a SQLite database; a person allows each change.")
    parser.add_argument("database", type=Path, help="the database's file")
    parser.add_argument("task", nargs="?", help="what to do")
    parser.add_argument("--port", type=int, default=0, help="the page's port on 127.0.0.1 (a free one)")
    parser.add_argument("--sample", action="store_true", help="make the database, with a small shop in it")
    args = parser.parse_args()
    try:
        if args.sample:
            make_sample(args.database)
        elif args.task is None:
            parser.error("say what to do")
        if args.task is not None:
            print(asyncio.run(work(args.database, args.task, args.port)))
    except (FerruleError, OSError) as error:
        print(f"database_agent: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
