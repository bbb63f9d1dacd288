"""One policy decision on `true` and on a pipeline, beside the parse of the same text.

The floor is what any such policy must do: parse the script with tree-sitter. Ours is the public path, `decide()` with a
few rules loaded, under the policy that asks most of it.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import tree_sitter_bash
from tree_sitter import Language, Parser

from benchmarks.measure import Work, bounded, cpu_in_turns
from ferrule.execpolicy import Rules, decide, load_rules
from ferrule.protocol.approvals import ExecApprovalRequest
from ferrule.protocol.permissions import AskForApproval, WorkspaceWrite

ROUNDS, CALLS = 15, 400
RULES = 'prefix_rule(pattern=["git", ["status", "diff"]])\nprefix_rule(pattern=["rm"], decision="prompt")\n'
ROWS = (
    ("policy decision: true", "true", 60.0),
    ("policy decision: a pipeline", "grep -rn TODO src | sort | uniq -c | head -20", 200.0),
)


def rules() -> Rules:
    """A few of each kind."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "default.rules")
        path.write_text(RULES)
        return load_rules([path])


def main() -> None:
    """Print one line a row."""
    parser = Parser(Language(tree_sitter_bash.language()))
    loaded = rules()
    for name, script, aim in ROWS:
        request = ExecApprovalRequest(("/bin/bash", "-lc", script), AskForApproval.UNTRUSTED, WorkspaceWrite())
        works: list[Work] = [partial(parser.parse, script.encode()), partial(decide, request, loaded)]
        floor, ours = cpu_in_turns(works, ROUNDS, CALLS)
        print(bounded(name, ours, aim, "us", 1e6, floor), flush=True)


if __name__ == "__main__":
    main()
