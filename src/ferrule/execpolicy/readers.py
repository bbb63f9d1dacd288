"""Programs that only read, each with the options that keep it so. Whatever is not listed here is asked about.

A program whose command line is a language of its own (find, sed, git) is judged in `safe.py` and `safe_git.py`.
"""

from collections.abc import Mapping

from ferrule.execpolicy.options import Options, options

READERS: Mapping[str, Options] = {
    "base64": options("Ddiu", "w", "decode ignore-garbage wrap"),
    "basename": options("az", "s", "multiple suffix zero"),
    "cat": options(
        "AbEensTtuv",
        "",
        """
        number number-nonblank show-all show-ends show-nonprinting show-tabs squeeze-blank
        """,
    ),
    "cd": options("eLP", operands=1),
    "cmp": options("bls", "in", "bytes ignore-initial print-bytes quiet silent verbose"),
    "comm": options("123iz", "", "check-order nocheck-order output-delimiter total zero-terminated"),
    "command": options("Vv"),
    "cut": options(
        "nsz",
        "bcdf",
        """
        bytes characters complement delimiter fields only-delimited output-delimiter zero-terminated
        """,
    ),
    "diff": options(
        "aBbcdEeiNpqrsTtuwyZ",
        "CIUWx",
        """
        brief color context exclude ignore-all-space ignore-blank-lines ignore-case ignore-space-change label
        minimal new-file recursive side-by-side strip-trailing-cr text unified width
        """,
    ),
    "dirname": options("z", "", "zero"),
    "du": options(
        "0abcHhkLlmPSsx",
        "Bdt",
        """
        all apparent-size bytes exclude human-readable max-depth si summarize threshold total
        """,
    ),
    "grep": options(
        "abcEFGHhIiLlnoPqRrsTUVvwxyZz",
        "ABCDdefm",
        """
        after-context basic-regexp before-context binary-files byte-offset color colour context count
        dereference-recursive devices directories exclude exclude-dir exclude-from extended-regexp file
        files-with-matches files-without-match fixed-strings ignore-case include initial-tab invert-match label
        line-buffered line-number line-regexp max-count no-filename no-ignore-case no-messages null null-data
        only-matching perl-regexp quiet recursive regexp silent text with-filename word-regexp
        """,
        numeric=True,
    ),
    "head": options("qvz", "cn", "bytes lines quiet silent verbose zero-terminated", numeric=True),
    "id": options("aGgnruZz", "", "context group groups name real user zero"),
    "ls": options(
        "1AaBbCcdFfGgHhikLlmNnopQqRrSstUuvXxZ",
        "ITw",
        """
        all almost-all author block-size classify color context dereference directory escape file-type format
        full-time group-directories-first hide hide-control-chars human-readable hyperlink ignore ignore-backups
        indicator-style inode kibibytes literal no-group numeric-uid-gid quote-name quoting-style recursive
        reverse show-control-chars si size sort tabsize time time-style width zero
        """,
    ),
    "md5sum": options("bt", "", "binary tag text zero"),
    "nl": options(
        "p",
        "bdfhilnsvw",
        """
        body-numbering footer-numbering header-numbering join-blank-lines line-increment no-renumber
        number-format number-separator number-width section-delimiter starting-line-number
        """,
    ),
    "numfmt": options(
        "z",
        "d",
        """
        debug delimiter field format from from-unit grouping header invalid padding round suffix to to-unit
        zero-terminated
        """,
    ),
    "paste": options("sz", "d", "delimiters serial zero-terminated"),
    "pwd": options("LP", "", "logical physical"),
    "readlink": options(
        "efmnqsvz",
        "",
        """
        canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent zero
        """,
    ),
    "realpath": options(
        "eLmPqsz",
        "",
        """
        canonicalize-existing canonicalize-missing logical no-symlinks physical quiet relative-base relative-to
        strip zero
        """,
    ),
    "rev": options("0"),
    "rg": options(
        ".0abcFHhIiLlNnoPpqSsUuVvwx",
        "ABCdEefgjMmrTt",
        """
        after-context before-context byte-offset case-sensitive color colors column context context-separator
        count count-matches crlf encoding file files files-with-matches files-without-match fixed-strings follow
        glob glob-case-insensitive heading hidden iglob ignore-case ignore-file include-zero invert-match json
        line-number line-regexp max-columns max-columns-preview max-count max-depth max-filesize mmap multiline
        multiline-dotall no-config no-filename no-heading no-hidden no-ignore no-ignore-dot no-ignore-global
        no-ignore-parent no-ignore-vcs no-line-number no-messages no-mmap null null-data one-file-system
        only-matching passthru pcre2 pretty quiet regexp replace smart-case sort sortr stats text threads trim
        type type-list type-not unrestricted vimgrep with-filename word-regexp
        """,
    ),
    "seq": options("w", "fst", "equal-width format separator", numeric=True),
    "sha1sum": options("bt", "", "binary tag text zero"),
    "sha256sum": options("bt", "", "binary tag text zero"),
    "stat": options("fLstx", "c", "cached dereference file-system format printf terse"),
    "tac": options("br", "s", "before regex separator"),
    "tail": options(
        "Ffqrvz",
        "bcns",
        """
        bytes follow lines pid quiet retry silent sleep-interval verbose zero-terminated
        """,
        numeric=True,
    ),
    "tr": options("Ccdst", "", "complement delete squeeze-repeats truncate-set1"),
    "uname": options(
        "aimnoprsv", "", "all kernel-name kernel-release kernel-version machine nodename operating-system"
    ),
    # The second operand of uniq is a file to write.
    "uniq": options(
        "cDdiuz",
        "fsw",
        """
        all-repeated check-chars count group ignore-case repeated skip-chars skip-fields unique zero-terminated
        """,
        operands=1,
    ),
    "wc": options("cLlmw", "", "bytes chars lines max-line-length total words"),
    "which": options("as", "", "all"),
    "whoami": options(),
}
