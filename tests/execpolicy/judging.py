"""Rules, and what they make of a script."""

from pathlib import Path

from ferrule.execpolicy import Rules, decide, load_rules
from ferrule.protocol.approvals import ExecApprovalRequest, ExecApprovalRequirement, NeedsApproval, Skip
from ferrule.protocol.permissions import AskForApproval, WorkspaceWrite

NO_PUSH = 'prefix_rule(pattern=["git", "push"], decision="forbidden")\n'


def rules_of(folder: Path, text: str) -> Rules:
    (folder / "x.rules").write_text(text)
    return load_rules([folder / "x.rules"])


def judge(
    script: str, rules: Rules, policy: AskForApproval = AskForApproval.ON_REQUEST, *, shell: str = "bash"
) -> ExecApprovalRequirement:
    return decide(ExecApprovalRequest((shell, "-c", script), policy, WorkspaceWrite()), rules)


def short(answer: ExecApprovalRequirement) -> str:
    if isinstance(answer, Skip):
        return "free" if answer.bypass_sandbox else "run"
    return "ask" if isinstance(answer, NeedsApproval) else "no"
