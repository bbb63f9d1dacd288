"""Which program a word names: its base name, and whether its place is one that only the system's owner writes."""

TRUSTED_DIRECTORIES = frozenset(
    ["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"]
)


def base_name(program: str) -> str:
    """Return the last component, without a trailing `.exe`."""
    return program.rpartition("/")[2].removesuffix(".exe")


def is_trusted(program: str) -> bool:
    """True for a bare name (looked up in PATH) and for a direct child of a system directory."""
    directory, _, name = program.rpartition("/")
    return bool(name) and (directory in TRUSTED_DIRECTORIES or "/" not in program) and not program.endswith(".exe")


def trusted_name(program: str) -> str | None:
    """Return the base name of a program in a trusted place, else None: `./git` must not pass for `git`."""
    return program.rpartition("/")[2] if is_trusted(program) else None
