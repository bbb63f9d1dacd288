"""Sessions whose server refuses something new every few turns: each goes on, also after its process has ended, and no
refusal comes twice. `python -m tests.soak.refusals [--minutes N] [--seed S]`."""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, http_error
from ferrule.testing.request import Request
from ferrule.testing.steps import Raw, raw
from tests.session.conversations import Place, call, chunks, function_call, items, said, thought
from tests.session.test_healing import CHAT_REFUSALS, RESPONSES_REFUSALS, WORDS, Held

MOST_TURNS = 4
"""Turns between two new refusals."""
STATUSES = (400, 404, 422, 500)
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
ANSWERS: dict[Wire, list[Raw]] = {
    "chat": [
        chunks({"reasoning_content": "Hm."}, call(extra_content={"google": {"thought_signature": "S"}})),
        chunks(call(name="picture")),
        chunks({"reasoning_content": "Hm."}, {"content": "Said."}),
    ],
    "responses": [
        items(thought(), SEARCHED, said("Look.", phase="commentary"), function_call()),
        items(function_call(name="picture")),
        items(thought("rs_2", "gAAA2"), said("Said.")),
    ],
}


class Refusing:
    """A server that refuses more and more. `refused` counts what was said by each of its rules."""

    def __init__(self, chance: random.Random, wire: Wire) -> None:
        self._chance = chance
        self._wire = wire
        self._rules: list[tuple[Held, str]] = []
        self.refused: dict[str, int] = {}

    def refuse(self, rule: tuple[Held, str]) -> None:
        self._rules.append(rule)

    def __call__(self, request: Request) -> Raw:
        text, body = request.raw.decode(), dict(request.body)
        found = [words for held, words in self._rules if held(text, body)]
        if found:
            words = self._chance.choice(found)
            self.refused[words] = self.refused.get(words, 0) + 1
            if self._chance.random() < 0.2:
                return raw(b'data: {"error":{"message":"%b","code":"invalid_value"}}\n\n' % words.encode())
            return http_error(self._chance.choice(STATUSES), words)
        asks = request.items[-1].get("role") == "user"
        return self._chance.choice(ANSWERS[self._wire]) if asks else WORDS[self._wire]


async def session(seed: int, folder: Path) -> int:
    """One session in some lives; returns how many turns it had."""
    chance = random.Random(seed)
    wire: Wire = chance.choice(["chat", "responses"])
    rules = list(RESPONSES_REFUSALS if wire == "responses" else CHAT_REFUSALS)
    chance.shuffle(rules)
    server, place, turns = Refusing(chance, wire), Place(folder), 0
    with ScriptedModel(server) as model:
        while True:
            prompts = [f"turn {turns + number}" for number in range(chance.randrange(1, MOST_TURNS))]
            await place.talk(model, wire, *prompts, model="gpt-5.5", resume=bool(turns))
            turns += len(prompts)
            if not rules:
                break
            server.refuse(rules.pop())
        before = dict(server.refused)
        await place.talk(model, wire, "after all", model="gpt-5.5", resume=True)
        assert server.refused == before, f"seed {seed}: refused again after resume: {server.refused}, {before}"
    twice = {words: times for words, times in server.refused.items() if times > LIMITS.get(words, 1)}
    assert not twice, f"seed {seed}: refused more than once: {twice}"
    return turns


LIMITS: dict[str, Any] = {"invalid_encrypted_content": 99}
"""Reasoning that comes later is sent and may be refused anew."""


async def main(minutes: float, seed: int) -> None:
    end, sessions, turns = time.monotonic() + minutes * 60, 0, 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            turns += await session(seed + sessions, Path(folder))
        sessions += 1
    print(f"{sessions} sessions from seed {seed}, {turns} turns: each went on")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(main(options.minutes, options.seed))
