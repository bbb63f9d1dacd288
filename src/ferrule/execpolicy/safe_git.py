"""Recognise read-only git: its command lines, and the configuration that keeps them so.

Git starts programs that its configuration names (pager, fsmonitor, textconv, filters, hooks), so a read-only command
line is safe only if nobody named one. The configuration is judged by an allow-list too: an unknown key is a no.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ferrule.execpolicy.options import Options, options, words

if TYPE_CHECKING:
    from ferrule.execpolicy.host import Host

_GLOBAL = frozenset(["--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"])

_DIFF = """
    abbrev binary cached check color color-moved color-words cumulative diff-algorithm diff-filter dirstat
    dst-prefix exit-code find-copies find-copies-harder find-renames full-index function-context histogram
    ignore-all-space ignore-blank-lines ignore-cr-at-eol ignore-matching-lines ignore-space-at-eol
    ignore-space-change ignore-submodules inter-hunk-context irreversible-delete merge-base minimal name-only
    name-status no-color no-color-moved no-ext-diff no-indent-heuristic no-patch no-prefix no-relative
    no-renames no-textconv numstat patch patch-with-raw patch-with-stat patience pickaxe-all pickaxe-regex quiet
    raw relative shortstat src-prefix staged stat summary text unified word-diff word-diff-regex
    ws-error-highlight
    """
_LOG = (
    _DIFF
    + """
    abbrev-commit after all all-match ancestry-path author author-date-order basic-regexp before boundary
    branches cc cherry cherry-mark cherry-pick children committer date date-order decorate decorate-refs
    decorate-refs-exclude dense do-walk encoding exclude extended-regexp first-parent fixed-strings follow
    format full-diff full-history glob graph grep invert-grep left-only left-right log-size max-count
    max-parents merge merges min-parents no-abbrev-commit no-decorate no-merges no-notes no-walk oneline parents
    perl-regexp pretty regexp-ignore-case relative-date remotes reverse right-only show-linear-break show-pulls
    simplify-by-decoration simplify-merges since since-as-filter skip source sparse tags topo-order until
    walk-reflogs
    """
)
_COMMANDS: Mapping[str, Options] = {
    "blame": options(
        "bcefklnpstw",
        "CLM",
        """
        abbrev color-by-age color-lines date incremental line-porcelain porcelain root score-debug show-email
        show-name show-number show-stats since
        """,
    ),
    "diff": options("aBbDpRsuWwz", "CGMSUX", _DIFF),
    "grep": options(
        "acEFGHhIiLlnoPpqrvWwz",
        "ABCefm",
        """
        after-context all-match and basic-regexp before-context break cached color column context count
        extended-regexp files-with-matches files-without-match fixed-strings full-name function-context heading
        ignore-case invert-match line-number max-count max-depth name-only no-color no-exclude-standard no-index
        not only-matching or perl-regexp quiet recursive show-function text threads untracked word-regexp
        """,
        numeric=True,
    ),
    "log": options("aBbDEFgimPpqRsuWwz", "CGLMnSUX", _LOG, numeric=True),
    "ls-files": options(
        "cdefiKkmostuvz",
        "Xx",
        """
        abbrev cached debug deduplicate deleted directory eol error-unmatch exclude exclude-standard full-name
        ignored killed modified no-empty-directory others stage unmerged
        """,
    ),
    "ls-tree": options("dlrtz", "", "abbrev full-name full-tree long name-only name-status object-only"),
    "rev-parse": options(
        "q",
        "",
        """
        abbrev-ref absolute-git-dir all branches exclude git-common-dir git-dir is-bare-repository
        is-inside-git-dir is-inside-work-tree is-shallow-repository quiet remotes short show-cdup
        show-object-format show-prefix show-toplevel symbolic symbolic-full-name tags verify
        """,
    ),
    "show": options("aBbDEmPpqRsuWwz", "CGLMnSUX", _LOG, numeric=True),
    "status": options(
        "bsvz",
        "u",
        """
        ahead-behind branch column find-renames ignore-submodules ignored long no-ahead-behind no-column
        no-renames porcelain renames short show-stash untracked-files verbose
        """,
    ),
}
# `git branch NAME` creates one: only listing forms, and at least one word that makes it a list.
_BRANCH = options(
    "ailrv",
    "",
    """
        all color column contains format ignore-case list merged no-color no-column no-contains no-merged
        points-at remotes show-current sort verbose
        """,
)
_BRANCH_LISTS = re.compile(
    r"-[alrv]+|--(all|list|remotes|show-current|verbose|format|contains|no-contains|merged|no-merged|points-at)"
)
_BRANCH_FILTERS = frozenset(["--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"])

# `%G?` starts gpg and `%(describe)` another git: only placeholders that print what is in the commit.
_PLACEHOLDER = re.compile(
    r"%[+\- ]?(?:[HhTtPpdDsSfbBeNmn%]|[ac][nNeElLdDrtiIsh]|g[dDnNeEs]|C(?:red|green|blue|reset|\([^()]*\))"
    r"|x[0-9a-fA-F]{2}"
    r"|w\([0-9, ]*\)|<\|?\([0-9]+[^()]*\)|>>?\|?\([0-9]+[^()]*\)|><\|?\([0-9]+[^()]*\))"
)


def is_safe_git(arguments: Sequence[str], host: "Host") -> bool:
    """Return True for a read-only command line (`arguments` without `git`) if `host.git_is_inert()`."""
    rest = list(arguments)
    while rest and rest[0] in _GLOBAL:
        rest.pop(0)
    return bool(rest) and _is_read_only(rest[0], rest[1:]) and host.git_is_inert()


def _is_read_only(command: str, arguments: Sequence[str]) -> bool:
    if command == "branch":
        if not arguments:
            return True
        return _BRANCH.allow(arguments) and _is_branch_list(arguments)
    allowed = _COMMANDS.get(command)
    if allowed is None or not allowed.allow(arguments):
        return False
    return command not in ("log", "show") or all(_prints_only(word) for word in arguments)


def _is_branch_list(arguments: Sequence[str]) -> bool:
    names = [word.partition("=")[0] for word in arguments]
    if not any(_BRANCH_LISTS.fullmatch(name) for name in names):
        return False
    return any(name in _BRANCH_FILTERS for name in names) or all(word.startswith("-") for word in arguments)


def _prints_only(word: str) -> bool:
    """Return True unless the word could be a format with a placeholder that starts a program."""
    return "%" not in _PLACEHOLDER.sub("", word)


_INERT_SECTIONS = words(
    """
    advice alias author branch clone color column commit committer credential difftool fetch gui help http i18n
    include includeif init mergetool pull push rebase receive rerere safe tag transfer uploadpack url user
    """
)
_INERT_KEYS = words(
    """
    core.abbrev core.autocrlf core.bare core.checkstat core.commentchar core.compression
    core.deltabasecachelimit core.editor core.eol core.excludesfile core.filemode core.fscache core.ignorecase
    core.logallrefupdates core.longpaths core.packedgitlimit core.precomposeunicode core.preloadindex
    core.quotepath core.repositoryformatversion core.safecrlf core.sshcommand core.symlinks core.trustctime
    core.untrackedcache core.whitespace diff.algorithm diff.colormoved diff.colormovedws diff.context
    diff.indentheuristic diff.interhunkcontext diff.mnemonicprefix diff.noprefix diff.renamelimit diff.renames
    diff.statgraphwidth diff.suppressblankempty diff.tool diff.wserrorhighlight extensions.objectformat
    extensions.worktreeconfig feature.manyfiles gc.auto gc.autodetach grep.column grep.extendedregexp
    grep.fullname grep.linenumber grep.patterntype index.threads index.version log.abbrevcommit log.date
    log.decorate log.follow log.mailmap maintenance.auto merge.conflictstyle merge.ff merge.tool pack.threads
    pack.windowmemory status.aheadbehind status.branch status.displaycommentprefix status.relativepaths
    status.renamelimit status.renames status.short status.showstash status.showuntrackedfiles
    """
)
_INERT_REMOTE = words(
    """
    fetch followremotehead gh-resolved head mirror proxy prune prunetags push pushurl skipfetchall tagopt url
    """
)
_PAGER_KEYS = re.compile(r"core\.pager|pager\..*")
_OFF = frozenset(["", "cat", "false"])


def is_inert_config(entries: Iterable[tuple[str, str]]) -> bool:
    """Return True if no entry makes a read-only command start a program, write or fetch.

    `entries` are (key, value) pairs, section and last part of a key in lower case.
    """
    return all(_is_inert_entry(key, value) for key, value in entries)


def _is_inert_entry(key: str, value: str) -> bool:
    section, _, rest = key.partition(".")
    if section in _INERT_SECTIONS or key in _INERT_KEYS:
        return True
    if section == "remote":
        return rest.rpartition(".")[2] in _INERT_REMOTE
    return value in _OFF and (_PAGER_KEYS.fullmatch(key) is not None or key == "core.fsmonitor")
