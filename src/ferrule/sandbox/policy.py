"""Turn a `SandboxPolicy` and a working directory into a `ConfinementPlan`. Reads the disk, changes nothing."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ferrule.egress.names import BadDomain, DomainNames
from ferrule.lookup import Places
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import InContainer, ReadOnly, SandboxPolicy, WorkspaceWrite
from ferrule.sandbox.caches import CACHES
from ferrule.sandbox.plan import ConfinementPlan, Reach, Root, is_within

SLASH_TMP = "/tmp"
HOME_FILES = (
    ".ssh", ".gnupg", ".config", ".local", ".aws", ".kube", ".docker", ".netrc", ".gitconfig", ".npmrc", ".pypirc",
    ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".inputrc", ".vimrc", ".xprofile", ".pam_environment",
)  # fmt: skip
"""Read-only where the home folder itself is a root: something outside the sandbox runs or trusts each of these."""


def plan_confinement(
    policy: SandboxPolicy, cwd: str, own_home: str, env: Mapping[str, str] = os.environ
) -> ConfinementPlan:
    """Work out what `read-only` or `workspace-write` means for commands that start in `cwd`.

    `own_home` is Ferrule's folder; HOME and TMPDIR come from `env`. Raises `UsageError` for a root that would expose
    the whole machine, and for a policy that no sandbox of ours enforces.
    """
    places = command_places(policy, cwd, own_home, env)
    if isinstance(policy, ReadOnly):
        return ConfinementPlan(network=policy.network_access is True, places=places, reach=reach_of(policy))
    if isinstance(policy, InContainer):  # which has a /tmp of its own
        policy = msgspec.structs.replace(policy, exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    if not isinstance(policy, WorkspaceWrite):
        raise UsageError(f"{type(policy).__name__} is not confined by a sandbox of ours: start its commands plainly")
    home = _real(env.get("HOME") or "~")
    warnings: list[str] = []
    wanted = [(cwd, "the working directory"), *((root, "writable root") for root in policy.writable_roots)]
    chosen = (_chosen(path, role, home, warnings) for path, role in wanted)
    caches = str(Path(_real(own_home), CACHES))
    roots = [_root(path, caches) for path in chosen if path is not None]
    roots += (Root(path, reserve=False, scan=False) for path in _temporary(policy, env))
    unique = {root.path: root for root in reversed(roots)}
    shared = [
        msgspec.structs.replace(root, reserve=root.reserve and path != SLASH_TMP) for path, root in unique.items()
    ]
    ordered = tuple(sorted(shared, key=lambda root: (root.path.count("/"), root.path)))
    return ConfinementPlan(
        roots=ordered,
        network=policy.network_access is True,
        read_only=tuple(_kept(ordered, home, own_home)),
        warnings=tuple(warnings),
        opened=tuple(root.path for root in ordered if is_within(root.path, caches)),
        places=places,
        reach=reach_of(policy),
    )


def reach_of(policy: ReadOnly | WorkspaceWrite) -> Reach | None:
    """Return what part of the network commands reach; None for all or nothing. Raises `UsageError`."""
    if isinstance(policy.network_access, bool):
        return None
    from ferrule.egress.addresses import read_hosts

    try:
        names = DomainNames.listed(policy.network_access)
        read_hosts(policy.hosts)
    except BadDomain as error:
        raise UsageError(f"network_access: {error}") from error
    return Reach(names, tuple(policy.hosts.items()), policy.ca_file)


def _root(path: str, caches: str) -> Root:
    """Make a root. One for caches is no project: it needs no reserved names and no search for repositories."""
    own = is_within(path, caches)
    return Root(path, reserve=not own, scan=not own)


def command_places(policy: SandboxPolicy, cwd: str, own_home: str, env: Mapping[str, str] = os.environ) -> Places:
    """Return where commands of this or another session could write, whatever the mode.

    A folder above the home folder is left out: no sandbox accepts it as a root, and it would contain every program.
    """
    home = _real(env.get("HOME") or "~")
    named = (cwd, *(policy.writable_roots if isinstance(policy, WorkspaceWrite) else ()))
    chosen = [real for path in named if (real := _real(path)) == home or not is_within(home, real)]
    roots = tuple(map(Root, dict.fromkeys((*chosen, *_temporary(WorkspaceWrite(), env)))))
    caches = str(Path(_real(own_home), CACHES))
    return Places(tuple(root.path for root in roots), tuple(_kept(roots, home, own_home)), (caches,))


def _chosen(path: str, role: str, home: str, warnings: list[str]) -> str | None:
    """Return the real path of a root that somebody named; None, with a warning, if it cannot be one."""
    real = _real(path)
    if is_within(home, real) and real != home:
        raise UsageError(f"{role} {path} contains the home folder and the system: choose a project folder")
    if real == home:
        warnings.append(f"{role} {path} is the home folder: commands can write every file in it except its dotfiles")
    elif not Path(real).exists():
        warnings.append(f"{role} {path} does not exist and is not writable")
        return None
    elif not Path(real).is_dir():
        warnings.append(f"{role} {path} is not a folder and is not writable")
        return None
    return real


def _temporary(policy: WorkspaceWrite, env: Mapping[str, str]) -> Iterable[str]:
    candidates = [] if policy.exclude_slash_tmp else [SLASH_TMP]
    if not policy.exclude_tmpdir_env_var and env.get("TMPDIR"):
        candidates.append(env["TMPDIR"])
    for path in candidates:
        real = _real(path)
        if real != "/" and Path(real).is_dir():
            yield real


def _kept(roots: tuple[Root, ...], home: str, own_home: str) -> Iterable[str]:
    """Yield paths that stay read-only although they lie in a root."""
    kept = [_real(own_home)]  # also before it is made
    if any(root.path == home for root in roots):
        kept += [path for name in HOME_FILES if Path(path := str(Path(home, name))).exists()]
    return (path for path in kept if any(is_within(path, root.path) for root in roots))


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))  # `Path` takes as long again
