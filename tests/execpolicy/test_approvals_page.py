"""docs/approvals.md shows the wrappers as the table in `wrappers.py` has them."""

from pathlib import Path

from ferrule.execpolicy.wrappers import plain_options

PAGE = Path(__file__).parents[2] / "docs/approvals.md"


def test_the_page_lists_every_wrapper_that_is_opened() -> None:
    _, _, rest = PAGE.read_text().partition("| wrapper | plain with |\n|---|---|\n")
    expected = []
    for name, plain in sorted(plain_options().items()):
        shown = "never" if plain is None else ", ".join(f"`{option}`" for option in sorted(plain)) or "no options"
        expected.append(f"| `{name}` | {shown} |")
    assert rest.partition("\n\n")[0].splitlines() == expected
