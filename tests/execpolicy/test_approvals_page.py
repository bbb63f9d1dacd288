"""docs/approvals.md shows the wrappers as the table has them."""

from pathlib import Path

from ferrule.execpolicy.wrapper_table import WRAPPERS, Wrapper

PAGE = Path(__file__).parents[2] / "docs/approvals.md"
HEAD = "| wrapper | a rule holds behind it with | a shell reads |\n|---|---|---|\n"


def row(name: str, wrapper: Wrapper) -> str:
    plain = "never" if wrapper.plain is None else ", ".join(f"`{option}`" for option in sorted(wrapper.plain))
    read = sorted([*wrapper.script, *(f"{option} '\\|...'" for option in wrapper.piped)])
    texts = ["its words"] if wrapper.joined else ["words with a blank"] if wrapper.quoted else []
    texts += [f"`{option}`" for option in read]
    texts += ["its input"] if wrapper.shell else []
    return f"| `{name}` | {plain or 'no options'} | {', '.join(texts)} |"


def test_the_page_lists_every_wrapper_that_is_opened() -> None:
    _, _, rest = PAGE.read_text().partition(HEAD)
    assert rest.partition("\n\n")[0].splitlines() == [row(name, WRAPPERS[name]) for name in sorted(WRAPPERS)]
