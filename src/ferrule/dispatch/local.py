"""A context without a session, with an orchestrator and a workspace of its own."""

import os
import secrets
from pathlib import Path

import msgspec

from ferrule.config import ferrule_home
from ferrule.dispatch.orchestrator import Orchestrator
from ferrule.dispatch.workspace import Workspace
from ferrule.execpolicy import DEFAULT_RULES, PolicyStore, load_rules, rule_files
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.errors import UsageError
from ferrule.protocol.profiles import ModelProfile
from ferrule.tools.answering import Approver, Listener, Questioned, answer_of
from ferrule.tools.context import LocalContext, Permissions
from ferrule.tools.files import Files
from ferrule.tools.local import LocalHost
from ferrule.tools.questions import Answer, Question


def open_local(
    cwd: str,
    permissions: Permissions,
    on_event: Listener | None,
    on_approval: Approver | None,
    on_question: Questioned | None,
) -> LocalContext:
    """Return a context in `cwd`, an absolute path; starts nothing. Raises `UsageError` for a directory that is none."""
    if not os.path.isdir(cwd):
        raise UsageError(f"the working directory {cwd} does not exist")
    home = ferrule_home()
    plain = PlainLauncher()
    workspace = Workspace(permissions.sandbox_policy, cwd, home)
    policies = PolicyStore(load_rules(rule_files([Path(home)])), Path(home) / DEFAULT_RULES)

    async def ask(question: Question) -> Answer:
        question = msgspec.structs.replace(question, request_id=question.request_id or secrets.token_hex(8))
        return await answer_of(question, on_approval, on_question)

    asked = ask if on_approval is not None or on_question is not None else None
    host = LocalHost(Orchestrator(plain, workspace, policies), on_event, asked, close=workspace.close)
    files = Files(workspace.readable_files, cwd)
    budget = ModelProfile(name="").output_budget
    return LocalContext(f"call_{secrets.token_hex(8)}", cwd, permissions, budget, files, host, end=host.aclose)
