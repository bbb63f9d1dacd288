"""Rate the harm that a command can do, from its facts alone."""

from collections.abc import Sequence

from ferrule.execpolicy.commands import CommandFacts, take_apart
from ferrule.execpolicy.dangerous import is_dangerous
from ferrule.execpolicy.environment import is_harmless
from ferrule.execpolicy.host import Host, UnknownHost
from ferrule.execpolicy.invocation import SHELLS
from ferrule.execpolicy.options import words
from ferrule.execpolicy.programs import base_name
from ferrule.execpolicy.safe import is_known_safe
from ferrule.execpolicy.script import SimpleCommand
from ferrule.protocol.approvals import SecurityRisk

# Other rights, other machines, whole disks, other people's processes, what runs later.
_HIGH = words(
    """
    sudo su doas pkexec chroot mount umount insmod modprobe dd shred wipefs fdisk parted sfdisk cryptsetup shutdown
    reboot halt poweroff init systemctl crontab at iptables nft useradd usermod userdel passwd visudo ssh scp sftp
    nc ncat socat telnet ftp killall pkill
    """
)
_DOWNLOADERS = frozenset(["curl", "wget"])
_GIT_HIGH = {
    "push": words("--force -f --force-with-lease --delete -d --mirror"),
    "reset": words("--hard"),
    "clean": words("-f -fd -fdx -fx -xdf -df --force"),
    "branch": words("-D -d --delete"),
    "filter-branch": frozenset(),
}


def command_risk(argv: Sequence[str], host: Host | None = None) -> SecurityRisk:
    """Return low (only reads), high (forced deletion, other machines or rights), unknown (unread) or medium.

    Never raises. Does not consider what a sandbox would prevent.
    """
    host = host or UnknownHost()
    facts = take_apart(argv, is_exposed=host.is_exposed)
    if any(_is_high(seen.command, host) for seen in facts.seen) or _runs_a_download(facts):
        return SecurityRisk.HIGH
    if not facts.understood or any(not seen.command.literal for seen in facts.seen) or not facts.seen:
        return SecurityRisk.UNKNOWN
    return SecurityRisk.LOW if is_known_safe(facts, host) else SecurityRisk.MEDIUM


def _is_high(command: SimpleCommand, host: Host) -> bool:
    argv = command.argv
    if not argv:
        return False
    name, rest = base_name(argv[0]), argv[1:]
    if is_dangerous(argv) or name in _HIGH or name.startswith("mkfs") or not is_harmless(command.env, host.is_exposed):
        return True
    if name == "git" and rest and rest[0] in _GIT_HIGH:
        return not _GIT_HIGH[rest[0]] or any(word in _GIT_HIGH[rest[0]] or word.startswith("+") for word in rest[1:])
    if name == "find":
        return "-delete" in rest
    return name in ("chmod", "chown", "chgrp") and any(word in ("-R", "--recursive") for word in rest)


def _runs_a_download(facts: CommandFacts) -> bool:
    """Return True for `curl URL | sh`: a shell without a script beside a program that fetches one."""
    commands = [seen.command.argv for seen in facts.seen if seen.command.argv]
    reads_script = any(base_name(argv[0]) in SHELLS and (len(argv) == 1 or "-s" in argv) for argv in commands)
    return reads_script and any(base_name(argv[0]) in _DOWNLOADERS for argv in commands)
