"""The views of `exec` against events in any order that a session can produce."""

import io
import json
import random
from collections import Counter

import msgspec
import pytest

from ferrule.doors.headless.human import Human
from ferrule.doors.headless.jsonl import JsonLines
from ferrule.doors.headless.terminal import Terminal
from ferrule.protocol.content import OutputText
from ferrule.protocol.events import (
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    ThreadStarted,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    TurnStarted,
)
from ferrule.protocol.items import FunctionCall, Message, make_item
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.settings import Settings

USAGE = TokenUsage(1, 0, 1, 0)


def begin(call_id: str) -> ExecCommandBegin:
    return ExecCommandBegin(call_id=call_id, command=("/bin/sh", "-lc", f"work {call_id}"), cwd="/", process_id=7)


def end(call_id: str, code: int) -> ExecCommandEnd:
    return ExecCommandEnd(call_id=call_id, exit_code=code, output=f"out {call_id}\n", duration_ms=5)


def command(call_id: str, chance: random.Random) -> list[Event]:
    """The events of one command: of its call, and of its process, which ends before or after it."""
    arguments = json.dumps({"cmd": f"work {call_id}"})
    item = make_item(FunctionCall(call_id=call_id, name="exec_command", arguments=arguments))
    if chance.random() < 0.2:
        refused = ItemCompleted(item=item, output=ToolOutput("refused", False), duration_ms=0)
        return [ItemStarted(item=item), refused]
    answered = ItemCompleted(item=item, output=ToolOutput("Chunk ID: 123456\nWall time: 0", True), duration_ms=1)
    delta = ExecCommandOutputDelta(call_id=call_id, stream="stdout", chunk=f"out {call_id}\n".encode())
    rest: list[Event] = [delta, end(call_id, chance.choice([0, 1, 137]))]
    rest.insert(chance.choice([0, 2]), answered)
    return [ItemStarted(item=item), begin(call_id), *rest]


def text(number: int) -> list[Event]:
    """A message that arrives in pieces."""
    item = make_item(Message(role="assistant", content=(OutputText(f"one two {number}"),)))
    pieces = (ItemUpdated(item_id=f"m{number}", kind="text", delta=piece) for piece in ("one ", f"two {number}"))
    return [*pieces, ItemCompleted(item=item)]


def story(seed: int) -> tuple[list[Event], int]:
    """Threads of events, mixed. Also the number of commands that began."""
    chance = random.Random(seed)
    threads = [command(f"c{n}", chance) for n in range(chance.randint(1, 6))]
    threads.append(text(0))
    if chance.random() < 0.3:
        threads.append([begin("own"), end("own", 0)])  # started by code, and not by a call
    began = sum(isinstance(event, ExecCommandBegin) for thread in threads for event in thread)
    mixed: list[Event] = [ThreadStarted(thread_id="t", model="m", cwd="/"), TurnStarted(turn_id="u")]
    while threads:
        thread = chance.choice(threads)
        mixed.append(thread.pop(0))
        threads = [left for left in threads if left]
    over: Event = TurnAborted(turn_id="u") if chance.random() < 0.2 else TurnCompleted(turn_id="u", usage=USAGE)
    of_processes = (ExecCommandEnd, ExecCommandOutputDelta)
    last = max(place for place, event in enumerate(mixed) if not isinstance(event, of_processes))
    mixed.insert(chance.randint(last + 1, len(mixed)), over)
    return mixed, began


@pytest.mark.parametrize("seed", range(0, 400, 100))
def test_every_item_is_completed_once_before_the_end(seed: int) -> None:
    for number in range(seed, seed + 100):
        events, began = story(number)
        stream = io.BytesIO()
        view = JsonLines(stream)
        for event in events:
            view.on_event(event)
        view.finish()
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        assert lines[-1]["type"] in ("turn.completed", "turn.failed")
        assert sum(line["type"] in ("turn.completed", "turn.failed") for line in lines) == 1
        started = [line["item"]["id"] for line in lines if line["type"] == "item.started"]
        completed = Counter(line["item"]["id"] for line in lines if line["type"] == "item.completed")
        assert set(completed.values()) == {1} and set(started) <= completed.keys(), number
        commands = [line["item"] for line in lines if line["type"] == "item.completed" and "exit_code" in line["item"]]
        ran = [item for item in commands if item["status"] != "declined"]
        assert len(ran) == began and all(isinstance(item["exit_code"], int) for item in ran)
        assert all(item["aggregated_output"] == f"out {item['command'].split()[-1].rstrip(chr(39))}\n" for item in ran)
        assert b"Chunk ID" not in stream.getvalue()


@pytest.mark.parametrize("seed", range(0, 400, 100))
def test_people_read_each_output_once_under_its_command(seed: int) -> None:
    for number in range(seed, seed + 100):
        events, began = story(number)
        words = io.StringIO()
        view = Human(Terminal(words, colored=False), Settings(cwd="/", home="/nowhere"))
        for event in events:
            view.on_event(event)
        view.finish()
        lines = words.getvalue().splitlines()
        outputs = [place for place, line in enumerate(lines) if line.startswith("  out ")]
        assert len(outputs) == began, number
        for place in outputs:
            name = lines[place].split()[-1]
            above = [line for line in lines[:place] if line.startswith("$ ")]
            assert above[-1] == f"$ work {name}", number
            assert "exit" in lines[place + 1]
        assert "Chunk ID" not in words.getvalue()


def test_people_and_programs_are_told_what_a_message_cites() -> None:
    pages = [
        {"type": "url_citation", "start_index": 0, "end_index": 4, "url": url, "title": title}
        for url, title in (
            ("https://a.example/\x1b[2J", "Tower"),
            ("https://b.example/", ""),
            ("https://b.example/", ""),
        )
    ]
    notes = tuple(msgspec.Raw(msgspec.json.encode(note)) for note in (*pages, {"type": "file_citation", "index": 1}))
    item = make_item(Message(role="assistant", content=(OutputText("High.", notes),)))
    words, stream = io.StringIO(), io.BytesIO()
    Human(Terminal(words, colored=False), Settings(cwd="/", home="/nowhere")).on_event(ItemCompleted(item=item))
    JsonLines(stream).on_event(ItemCompleted(item=item))
    assert words.getvalue().splitlines()[-3:] == [
        "sources:",
        r"  Tower  https://a.example/\x1b[2J",
        "  https://b.example/",
    ]
    assert json.loads(stream.getvalue())["item"] == {
        "id": "item_0", "type": "agent_message", "text": "High.", "citations": pages,
    }  # fmt: skip
