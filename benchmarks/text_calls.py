"""How many recorded answers of models are read right by the text protocol.

    python -m benchmarks.text_calls FIXTURES [--show] [--family NAME]

FIXTURES is the folder `fixtures` of canitoolcall (PyPI), whose records hold an answer, the tools, and what is to be
read. Right: the calls equal the expected ones, in order, in name and arguments, whether the answer comes at once, by
characters or in random pieces. Also counted: text that is no call and was read as one.
"""

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from ferrule.model.adapt import WireTool
from ferrule.model.names import Callee, CallNames
from ferrule.model.text.reader import CallFinder
from ferrule.model.text.tools import KnownTools

SEEDS = range(5)
LONGEST_PIECE = 12


def known(tools: list[dict[str, Any]]) -> KnownTools:
    """The tools of a record."""
    functions = [tool["function"] for tool in tools]
    names = CallNames({(None, tool["name"]): Callee(tool["name"]) for tool in functions})
    wire = [WireTool(json.dumps({"function": tool}).encode(), tool["name"], "function") for tool in functions]
    return KnownTools(wire, lambda name: names.resolve(name) is not None)


def pieces(text: str) -> list[list[str]]:
    """The ways in which an answer arrives."""
    ways = [[text], list(text)]
    for seed in SEEDS:
        chance, at, way = random.Random(seed), 0, []
        while at < len(text):
            size = chance.randint(1, LONGEST_PIECE)
            way.append(text[at : at + size])
            at += size
        ways.append(way)
    return ways


def read(record: dict[str, Any], way: list[str]) -> tuple[str, list[tuple[str, Any]], str]:
    """The text, the calls, and why a call could not be read."""
    tools = known(record["tools"])
    finder = CallFinder(tools)
    names = CallNames({(None, name): Callee(name) for name in tools.names})
    shown = "".join(map(finder.feed, way))
    ending = finder.finish(cut="truncated" in record["tags"])
    calls = [(_name(names, call.name), _arguments(call.arguments)) for call in ending.calls]
    return shown + ending.text, calls, "; ".join(unread.why for unread in ending.unread)


def _name(names: CallNames, name: str) -> str:
    callee = names.resolve(name)
    return name if callee is None else callee.name


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def judge(record: dict[str, Any]) -> tuple[bool, bool, list[Any]]:
    """Whether all ways are read right; whether something was read that is no call; what was read at once."""
    wanted = [(call["name"], call["arguments"]) for call in (record.get("expected") or {}).get("tool_calls", ())]
    results = [read(record, way) for way in pieces(record["raw_output"])]
    right = all(_same(calls, wanted) for _, calls, _ in results)
    invented = any(len(calls) > len(wanted) for _, calls, _ in results)
    return right, invented, [wanted, *[result for result in results if not _same(result[1], wanted)][:1]]


def _same(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps([list(call) for call in other], sort_keys=True)  # type: ignore[attr-defined]


def main() -> None:
    """Print a row for each family."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("--show", action="store_true", help="print what is not read right")
    parser.add_argument("--family")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for folder in sorted(path for path in options.fixtures.iterdir() if path.is_dir()):
        if options.family in (None, folder.name):
            total += _family(folder, options.show)
    print(f"{'all':<14} {total['right']}/{total['records']} right, {total['invented']} with calls that are none")


def _family(folder: Path, show: bool) -> Counter[str]:
    count: Counter[str] = Counter()
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            right, invented, said = judge(record)
            count["records"] += 1
            count["right"] += right
            count["invented"] += invented
            if show and not right:
                print(record["id"], json.dumps(record["raw_output"], ensure_ascii=False)[:400])
                print("    ", *[json.dumps(part, ensure_ascii=False)[:400] for part in said], sep="\n    ")
    print(f"{folder.name:<14} {count['right']}/{count['records']} right, {count['invented']} with calls that are none")
    return count


if __name__ == "__main__":
    main()
