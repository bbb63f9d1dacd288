"""Row "policy decision": one decision on `true` and on a pipeline, beside the parse of the same text.

The floor is what any such policy must do: parse the script with tree-sitter. Ours is the public path, `decide()` with a
few rules loaded, under the policy that asks most of it. Aims: 60 us and 200 us.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import tree_sitter_bash
from tree_sitter import Language, Parser

from ferrule.execpolicy import Rules, decide, load_rules
from ferrule.protocol.approvals import ExecApprovalRequest
from ferrule.protocol.permissions import AskForApproval, WorkspaceWrite

ROUNDS, CALLS = 15, 400
RULES = 'prefix_rule(pattern=["git", ["status", "diff"]])\nprefix_rule(pattern=["rm"], decision="prompt")\n'
ROWS = (
    ("policy decision: true", "true", 60.0),
    ("policy decision: a pipeline", "grep -rn TODO src | sort | uniq -c | head -20", 200.0),
)


def microseconds(work: Callable[[], object]) -> float:
    """CPU time of one call of `work`, from a batch: it never waits, so other load does not count."""
    started = time.process_time()
    for _ in range(CALLS):
        work()
    return (time.process_time() - started) / CALLS * 1e6


def rules() -> Rules:
    with TemporaryDirectory() as folder:
        path = Path(folder, "default.rules")
        path.write_text(RULES)
        return load_rules([path])


def main() -> None:
    parser = Parser(Language(tree_sitter_bash.language()))
    loaded = rules()
    for name, script, aim in ROWS:
        source = script.encode()
        request = ExecApprovalRequest(("/bin/bash", "-lc", script), AskForApproval.UNTRUSTED, WorkspaceWrite())
        ours, floor = [], []
        for _ in range(ROUNDS):
            floor.append(microseconds(lambda source=source: parser.parse(source)))  # type: ignore[misc]
            ours.append(microseconds(lambda request=request: decide(request, loaded)))  # type: ignore[misc]
        mine, least = statistics.median(ours), statistics.median(floor)
        print(f"{name}: ours {mine:.1f} us, floor {least:.1f} us, ratio {mine / least:.1f} (aim {aim:.0f} us)")


if __name__ == "__main__":
    main()
