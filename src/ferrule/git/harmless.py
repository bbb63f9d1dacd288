"""List the settings that only hold data, whatever the user does with git there.

These are known to start no program (git-config(1) of git 2.54, and what common tools write). `programs` reports every
other key, so that a key that git adds tomorrow is shown and not missed.
"""

import re

from ferrule.git.config import Entry

_DATA_SECTIONS = "advice author color column committer fetch i18n index log pack push rerere status"
_DATA_KEYS = """
    branch.description branch.gh-merge-base branch.github-pr-base-branch branch.github-pr-owner-number
    branch.merge branch.pushremote branch.rebase branch.remote branch.vscode-merge-base commit.gpgsign
    commit.status commit.verbose core.abbrev core.autocrlf core.bare core.bigfilethreshold core.checkstat
    core.commentchar core.compression core.eol core.fscache core.filemode core.ignorecase core.ignorestat
    core.logallrefupdates core.longpaths core.loosecompression core.precomposeunicode core.preloadindex
    core.protecthfs core.protectntfs core.quotepath core.repositoryformatversion core.safecrlf
    core.sharedrepository core.sparsecheckout core.sparsecheckoutcone core.splitindex core.symlinks
    core.trustctime core.untrackedcache core.whitespace core.worktree diff.algorithm diff.colormoved diff.context
    diff.ignoresubmodules diff.indentheuristic diff.mnemonicprefix diff.noprefix diff.renamelimit diff.renames
    diff.submodule extensions.compatobjectformat extensions.objectformat extensions.partialclone
    extensions.preciousobjects extensions.refstorage extensions.relativeworktrees extensions.worktreeconfig
    feature.experimental feature.manyfiles gc.auto gc.autodetach gc.autopacklimit gc.pruneexpire gc.reflogexpire
    gc.reflogexpireunreachable init.defaultbranch lfs.repositoryformatversion maintenance.auto
    maintenance.strategy merge.conflictstyle merge.directoryrenames merge.ff merge.log merge.renamelimit
    merge.renames merge.stat pull.ff pull.rebase rebase.autosquash rebase.autostash rebase.updaterefs remote.fetch
    remote.followremotehead remote.gh-resolved remote.glab-resolved remote.mirror remote.partialclonefilter
    remote.promisor remote.prune remote.prunetags remote.push remote.pushurl remote.skipdefaultupdate
    remote.skipfetchall remote.tagopt remote.url submodule.active submodule.branch
    submodule.fetchrecursesubmodules submodule.ignore submodule.path submodule.recurse submodule.shallow
    submodule.update submodule.url tag.gpgsign tag.sort user.email user.name user.signingkey user.useconfigonly
"""
_SECTIONS, _KEYS = frozenset(_DATA_SECTIONS.split()), frozenset(_DATA_KEYS.split())
_FLAGS = frozenset(["", "0", "1", "false", "no", "off", "on", "true", "yes"])
_ADDRESSES = ("url", "pushurl", "remote", "pushremote")
"""Names whose value may be an address; a branch may name one instead of a remote."""
_HELPER = re.compile(r"[A-Za-z0-9+.-]*::|-")
"""`ext::sh -c x` names a program, `foo::x` starts `git-remote-foo`; a leading dash would be an option of ssh."""


def is_harmless(entry: Entry) -> bool:
    """Tell whether the entry starts no program, neither by itself nor together with an attribute."""
    if entry.section == "core" and entry.name == "fsmonitor":
        return entry.value.lower() in _FLAGS  # `true` is git's own daemon
    if entry.name in _ADDRESSES and _HELPER.match(entry.value):
        return False
    if entry.section == "submodule" and entry.name == "update":
        return not entry.value.startswith("!")
    return entry.section in _SECTIONS or f"{entry.section}.{entry.name}" in _KEYS
