"""The basis of a session: the workspace, the rules, the shell, and the state that tools get."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ferrule.dispatch.front_end import Answers
from ferrule.dispatch.network import forbidden_host
from ferrule.dispatch.orchestrator import Orchestrator, PermissionHook
from ferrule.dispatch.security import Security, confirmation_policy
from ferrule.dispatch.unfinished import put_right
from ferrule.dispatch.workspace import Workspace
from ferrule.execpolicy import DEFAULT_RULES, PolicyStore, load_rules, rule_files, with_project_rules
from ferrule.process.plain import PlainLauncher
from ferrule.process.shell import LoginShell, Shell
from ferrule.protocol.errors import UsageError
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.settings import Settings
from ferrule.protocol.truncation import OutputBudget
from ferrule.retrieval.access import FolderAccess
from ferrule.session.caches import with_caches
from ferrule.session.file_search import folder_access
from ferrule.session.image_generation import image_access
from ferrule.session.web import web_access
from ferrule.tools.commands import Commands
from ferrule.tools.context import Permissions
from ferrule.tools.conversation import Conversation
from ferrule.tools.turn_diff import TurnDiffTracker
from ferrule.undo.undo_log import UndoLog


class Runtime(msgspec.Struct, frozen=True):
    """Made once a session, from its settings."""

    conversation: Conversation
    workspace: Workspace
    policies: PolicyStore
    security: Security
    env: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    """Warnings for the user before the first turn."""

    def orchestrator(self, permission_hook: PermissionHook | None = None) -> Orchestrator:
        """Make the session's orchestrator. `permission_hook` is asked before the user is."""
        return Orchestrator(PlainLauncher(), self.workspace, self.policies, self.env, self.security, permission_hook)


def build_runtime(
    settings: Settings,
    profile: ModelProfile,
    env: Mapping[str, str] = os.environ,
    answers: Answers = Answers(True, True),  # noqa: B008 - a tuple
    report: Callable[[str], None] | None = None,
    policies: PolicyStore | None = None,
    undo_log: UndoLog | None = None,
    parent: Workspace | None = None,
    folders: FolderAccess | None = None,
    login: LoginShell | None = None,
) -> Runtime:
    """Make what a session stands on; start nothing. `report` hears what commands left behind in repositories. A
    sub-agent shares the `policies`, the `undo_log` and the container of the `parent` that starts it, and its `folders`.
    Somebody else closes the `login` shell that is given.

    Raises `UsageError` for a wrong directory, root or rules file.
    """
    if not os.path.isdir(settings.cwd):
        raise UsageError(f"the working directory {settings.cwd} does not exist; choose another one with -C")
    told = put_right(settings.home)
    policy, variables = with_caches(settings)
    workspace = Workspace(
        policy,
        settings.cwd,
        settings.home,
        unconfined_accepted=settings.accept_no_sandbox,
        env=env,
        report=report,
        parent=parent,
    )
    warnings: tuple[str, ...] = ()
    if policies is None:
        own_rules = load_rules(rule_files([Path(settings.home)]))
        rules, warnings = with_project_rules(own_rules, settings.project_rules)
        policies = PolicyStore(rules, Path(settings.home) / DEFAULT_RULES)
    tokens = settings.tool_output_tokens
    permissions = Permissions(settings.approval_policy, policy, *answers)
    conversation = Conversation(
        cwd=settings.cwd,
        permissions=permissions,
        profile=profile,
        output_budget=profile.output_budget if tokens is None else OutputBudget(tokens),
        commands=Commands(
            PlainLauncher(),
            settings.cwd,
            settings.command_environment,
            marks=variables,
            base=env if workspace.container is None else workspace.container.environment,
            places=workspace.places,
            shell=None if workspace.container is None else Shell(workspace.container.shell),
            login=login,
        ),
        turn_diff=TurnDiffTracker(settings.cwd, undo_log),
        home=settings.home,
        roles={name: role.description for name, role in settings.agents.items()},
        python=settings.python,
        web=web_access(settings, env, workspace.places),
        file_search=_folders(settings, env, workspace, parent, folders),
        computer=settings.computer,
        forbids=lambda host, port: forbidden_host(host, port, permissions, policies.rules),
        images=image_access(settings, env, workspace.places),
    )
    security = Security(policy=confirmation_policy(settings.confirmation))
    return Runtime(conversation, workspace, policies, security, env, (*told, *warnings, *workspace.warnings))


def _folders(
    settings: Settings,
    env: Mapping[str, str],
    workspace: Workspace,
    parent: Workspace | None,
    of_parent: FolderAccess | None,
) -> FolderAccess | None:
    """Return the search in folders: the parent's, where it may read the same."""
    shown = workspace.readable_files.shown
    if of_parent is not None and parent is not None and parent.readable_files.shown == shown:
        return of_parent.borrowed()
    return folder_access(settings, env, shown)
