"""`ferrule policy check`: the decision on one command, as JSON."""

import os
import sys
from pathlib import Path

import msgspec

from ferrule.cli.options import Parser, add_config_flag, add_directory_flag, configuration, print_warnings
from ferrule.execpolicy import LocalHost, decide, load_rules, policy_report, rule_files, with_project_rules
from ferrule.protocol.approvals import ExecApprovalRequest
from ferrule.protocol.errors import UsageError
from ferrule.sandbox.policy import command_places


def main(arguments: list[str]) -> int:
    """Print the exec policy's decision on a command without running it. Return 0 once it is decided."""
    parser = Parser("policy check", "Say whether a command may run, and why. Nothing is run.")
    parser.usage = "ferrule policy check [--rules FILE]... [-a POLICY] [-s MODE] -- CMD..."
    parser.add_argument("--rules", metavar="FILE", action="append", help="rules instead of the configured ones")
    parser.add_argument(
        "-s", "--sandbox", metavar="MODE", help="read-only, workspace-write, container or danger-full-access"
    )
    parser.add_argument(
        "-a", "--ask-for-approval", dest="approval", metavar="POLICY",
        help="untrusted, on-failure, on-request or never",
    )  # fmt: skip
    add_directory_flag(parser)
    add_config_flag(parser)
    parser.add_argument("command", nargs="*", metavar="CMD", help="the command, after --")
    if arguments[:1] != ["check"]:
        if arguments[:1] in (["-h"], ["--help"]):
            parser.parse_args(["--help"])
        raise UsageError("`ferrule policy` knows `check`: ferrule policy check -- CMD...")
    options = parser.parse_args(arguments[1:])
    if not options.command:
        raise UsageError("a command is missing: ferrule policy check -- CMD...")
    settings = configuration(options).settings
    own = rule_files([Path(settings.home)]) if options.rules is None else [Path(file) for file in options.rules]
    of_project = settings.project_rules if options.rules is None else ()
    rules, warnings = with_project_rules(load_rules(own), of_project)
    print_warnings(warnings)
    request = ExecApprovalRequest(
        command=tuple(options.command),
        approval_policy=settings.approval_policy,
        sandbox_policy=settings.sandbox_policy,
    )
    places = command_places(settings.sandbox_policy, settings.cwd, settings.home)
    report = policy_report(decide(request, rules, LocalHost(settings.cwd, dict(os.environ), places)))
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    return 0
