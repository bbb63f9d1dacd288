"""`ferrule sessions`: the stored sessions."""

import argparse
import shutil
import sys
from datetime import datetime
from pathlib import Path

import msgspec

from ferrule.cli.exit_codes import DONE, FAILED
from ferrule.cli.options import Parser, working_directory
from ferrule.config import ferrule_home
from ferrule.history.compaction import is_said, is_words_of_user
from ferrule.protocol.content import text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.items import Message
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.rendering.undone import undone_lines
from ferrule.session.index import SessionEntry, SessionIndex
from ferrule.session.replay import said
from ferrule.session.rollout import unread
from ferrule.session.salvage import Salvage
from ferrule.sync import wait_for_coroutine

DESCRIPTION = """\
List, show, copy, name and remove stored sessions. Each is found by its id, the beginning of its id, or its name."""


def main(arguments: list[str]) -> int:
    """Do one thing with the sessions. Return the exit code."""
    options = _parser().parse_args(arguments)
    index = SessionIndex(ferrule_home())
    action = options.action or "list"
    if action == "list":
        return _list(index, options)
    if action == "show":
        return _show(index.find(options.session))
    if action == "export":
        sys.stdout.flush()
        with Path(index.find(options.session).path).open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        return DONE
    if action == "undo":
        return _undo(options)
    if action == "fork":
        print(index.fork(options.session, options.turns))
        return DONE
    if action == "rename":
        entry = index.rename(options.session, options.name)
        print(f"{entry.id} is {safe(entry.name)} now")
        return DONE
    entry = index.archive(options.session) if action == "archive" else index.remove(options.session)
    print(f"{entry.id} is {'archived: ' + safe(entry.path) if action == 'archive' else 'deleted'}")
    return DONE


def _parser() -> Parser:
    parser = Parser("sessions", DESCRIPTION)
    parser.set_defaults(all=False, json=False, archived=False)
    actions = parser.add_subparsers(dest="action", parser_class=argparse.ArgumentParser)
    listed = actions.add_parser("list", help="list the sessions of this directory, the newest first")
    listed.add_argument("--all", action="store_true", help="those of every directory")
    listed.add_argument("--archived", action="store_true", help="those that were archived")
    listed.add_argument("--json", action="store_true", help="print one JSON object per line")
    for name, what in (
        ("show", "print what was said"),
        ("export", "print the session file"),
        ("fork", "copy a session as a new one, and print its id"),
        ("rename", "give a session a name"),
        ("archive", "move a session where it is no longer listed"),
        ("rm", "delete a session"),
        ("undo", "take back what the last turn of a session changed"),
    ):
        action = actions.add_parser(name, help=what)
        count = "?" if name == "undo" else None
        action.add_argument("session", metavar="ID", nargs=count, help="the id, its beginning, or the name")
        if name == "undo":
            action.add_argument("--last", action="store_true", help="the newest session of this directory")
        if name == "fork":
            action.add_argument("--turns", type=int, metavar="N", help="only its first N turns")
        if name == "rename":
            action.add_argument("name", metavar="NAME")
    return parser


def _list(index: SessionIndex, options: argparse.Namespace) -> int:
    cwd = None if options.all else str(working_directory(None))
    entries = index.entries(cwd=cwd, archived=options.archived)
    for entry in entries:
        print(msgspec.json.encode(entry).decode() if options.json else _line(entry))
    if not entries and not options.json:
        print("no session was begun here; `ferrule sessions list --all` lists those of every directory")
    return DONE


def _undo(options: argparse.Namespace) -> int:
    """Take back, by the session's own rights. Return 1 where something was left alone."""
    from ferrule.session.resuming import Given, resume_settings
    from ferrule.session.undo import undo_stored

    if (options.session is None) != options.last:
        raise UsageError("`sessions undo` needs the ID of a session, or --last")
    settings = Settings(cwd=str(working_directory(None)), home=ferrule_home())
    settings, stored = resume_settings(
        settings, options.session, Given(), begun_in=settings.cwd if options.last else None
    )
    done = wait_for_coroutine(
        undo_stored(settings, stored, lambda text: print(f"ferrule: {safe(text)}", file=sys.stderr))
    )
    for line in undone_lines(done):
        print(safe(line))
    return FAILED if done.left else DONE


def _line(entry: SessionEntry) -> str:
    when = datetime.fromtimestamp(entry.updated / 1e9).strftime("%Y-%m-%d %H:%M")
    turns = "1 turn" if entry.turns == 1 else f"{entry.turns} turns"
    what = f"{entry.name}: {entry.prompt}" if entry.name else entry.prompt
    return f"{entry.id}  {when}  {turns:<8}  {safe(entry.cwd)}  {safe(what)}"


def _show(entry: SessionEntry) -> int:
    path = Path(entry.path)
    print(_line(entry))
    with path.open("rb") as file:
        lines = Salvage(file)
        for item in said(lines):
            if isinstance(item.view, Message) and (is_words_of_user(item) or is_said(item)):
                who = "user" if item.view.role == "user" else "model"
                print(f"\n{who}:\n{safe(text_of(item.view.content))}")
    if lines.damaged:
        print(f"ferrule: {unread(path, lines.damaged)}", file=sys.stderr)
    return DONE
