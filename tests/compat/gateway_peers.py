"""Servers of the Responses API side by side: the Open Responses suite and `ferrule serve check` against each.

All have the same scripted upstream. `scripts/compat_responses` runs this.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

import ferrule
from ferrule.conformance.run import Result, chosen, results
from ferrule.conformance.scripted import says as checked
from ferrule.conformance.server import Server as Checked
from ferrule.testing import ScriptedModel
from ferrule.testing.delivery import Delivery
from ferrule.testing.request import Request, Wire
from ferrule.testing.steps import Simple, Step, as_step
from tests.compat.openresponses import says as complied
from tests.compat.openresponses import suite_copy
from tests.compat.servers import KEY, SERVERS, NotStarted, Server, installed, running, version
from tests.gateway.served import new_place, serving

WAIT_S = 10.0
"""Seconds for one answer: the upstream answers at once, so what takes longer hangs."""
SUITE_S = 60
"""Seconds for the Open Responses suite, which runs its tests at once."""
PIECES = Delivery(chunks=512)
"""A stream comes in pieces, of a length that nobody knows beforehand, as from any model."""
BEYOND = "unknown"
"""The group of checks that ask more than the API does."""
ELSEWHERE = {
    "openresponses-gw": "in Go, on no registry that is reached here",
    "open-responses (masaic), open-responses (julep)": "run by Docker Compose",
    "vLLM, SGLang, TensorRT-LLM, Ollama, llama.cpp, LM Studio": "run models themselves: there is no upstream to script",
    "OpenRouter": "is a service",
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one server did over one upstream wire."""

    name: str
    version: str
    wire: str
    suite: list[tuple[str, str]]
    checks: list[Result]

    def passed(self, group: str) -> tuple[int, int]:
        """Return how many checks of a group passed, and how many there are."""
        of_group = [check for check in self.checks if _group(check) == group]
        return sum(check.status == "passed" for check in of_group), len(of_group)


def _group(check: Result) -> str:
    return check.check.partition(".")[0]


def upstream(request: Request) -> Simple:
    """Answer as either suite expects: theirs has a tool with a location."""
    answer = as_step(complied(request) if b'"location"' in request.raw else checked(request))
    is_plain = isinstance(answer, Step) and request.stream and answer.delivery.at_once
    return msgspec.structs.replace(answer, delivery=PIECES) if is_plain else answer


def run_suite(suite: Path, url: str) -> list[tuple[str, str]]:
    """Run the Open Responses suite; return each test with its status."""
    bun = str(suite / "node_modules" / ".bin" / "bun")
    words = [bun, "run", "bin/compliance-test.ts", "--base-url", url, "--api-key", KEY, "--model", "m", "--json"]
    try:
        done = subprocess.run(words, cwd=suite, capture_output=True, text=True, timeout=SUITE_S, check=False)
    except subprocess.TimeoutExpired:
        return [(f"it still ran after {SUITE_S} s", "failed")]
    report = json.loads(done.stdout)
    return [(test["id"], test["status"]) for test in report["results"]]


def run_checks(url: str, *, key: str) -> list[Result]:
    """Run our checks."""
    with closing(Checked(url, key=key, wait_s=WAIT_S)) as server:
        return list(results(server, chosen("*")))


def measured(name: str, wire: Wire, url: str, number: str, suite: Path | None) -> Row:
    """Run both suites against a server that runs."""
    said = [] if suite is None else run_suite(suite, url)
    return Row(name=name, version=number, wire=wire, suite=said, checks=run_checks(url, key=KEY))


@contextmanager
def _ferrule(model: ScriptedModel, wire: Wire, folder: Path) -> Iterator[str]:
    with serving(new_place(folder), model.base_url, wire=wire) as gateway:
        yield gateway.url


def ours(suite: Path | None, folder: Path) -> Iterator[Row]:
    """Yield the rows of `ferrule serve`, and that of the upstream with no server before it."""
    for wire in ("chat", "responses"):
        place = folder / wire
        place.mkdir()
        with ScriptedModel(upstream, strict=False) as model, _ferrule(model, wire, place) as url:
            yield measured("Ferrule", wire, url, ferrule.__version__, suite)
    with ScriptedModel(upstream, strict=False) as model:
        yield measured("the upstream alone", "responses", model.base_url, ferrule.__version__, suite)


def theirs(server: Server, suite: Path | None, installs: Path, folder: Path) -> Iterator[Row]:
    """Yield a row for each wire of a server; raises `NotStarted`."""
    bin_folder = installed(server, installs)
    for wire in server.wires:
        home = folder / f"{server.name}-{wire}"
        with ScriptedModel(upstream, strict=False) as model:
            root = model.base_url.removesuffix("/v1")
            with running(server, bin_folder, root, wire, home) as started:
                yield measured(server.name, wire, started.url, version(server, bin_folder), suite)


def table(rows: Sequence[Row]) -> str:
    """Return the table of all rows, in Markdown."""
    groups = [group for group in dict.fromkeys(_group(check) for check in rows[0].checks) if group != BEYOND]
    columns = ["server", "version", "upstream", "Open Responses", "our checks", *groups, BEYOND]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        suite = f"{sum(status == 'passed' for _, status in row.suite)}/{len(row.suite)}" if row.suite else "-"
        of_groups = [row.passed(group) for group in groups]
        total = sum(passed for passed, _ in of_groups), sum(count for _, count in of_groups)
        figures = [f"{passed}/{count}" for passed, count in (total, *of_groups, row.passed(BEYOND))]
        lines.append(f"| {' | '.join([row.name, row.version, row.wire, suite, *figures])} |")
    return "\n".join(lines)


def failures(row: Row) -> Iterator[str]:
    """Yield a line for all that a server failed."""
    suite = [name for name, status in row.suite if status == "failed"]
    head = f"{row.name}, upstream {row.wire}"
    yield f"{head}, Open Responses: {', '.join(suite) or 'nothing'}"
    for check in row.checks:
        if check.status != "passed":
            yield f"{head}, {check.check} {check.status}: {check.why[:160]}"


def main() -> int:
    """Print the table, then what each server failed. Exits with 1 only if Ferrule failed something."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("installs", type=Path, help="where servers are installed")
    options.add_argument("--suite", type=Path, help="a checkout of the Open Responses suite")
    options.add_argument("--modules", type=Path, help="node_modules with bun and zod for it")
    options.add_argument("--only", default="", help="the servers whose name has this in it, and Ferrule")
    given = options.parse_args()
    rows: list[Row] = []
    left_out = dict(ELSEWHERE)
    with tempfile.TemporaryDirectory(prefix="ferrule-peers-") as temporary:
        folder = Path(temporary)
        suite = suite_copy(given.suite, given.modules, folder) if given.suite else None
        rows += ours(suite, folder)
        for server in SERVERS:
            if given.only.lower() not in server.name.lower():
                continue
            print(f"# {server.name}", file=sys.stderr, flush=True)
            try:
                for row in theirs(server, suite, given.installs.resolve(), folder):
                    print(table([row]), file=sys.stderr, flush=True)
                    rows.append(row)
            except NotStarted as reason:
                left_out[server.name] = str(reason)
    print(table(rows), "", sep="\n", flush=True)
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    for row in rows:
        print("", *failures(row), sep="\n")
    counts = Counter(str(check.status) for row in rows if row.name == "Ferrule" for check in row.checks)
    counts.update(status for row in rows if row.name == "Ferrule" for _, status in row.suite)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
