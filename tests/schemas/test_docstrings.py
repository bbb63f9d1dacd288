"""Three ways of writing parameters into docstrings."""

import pytest

from ferrule.schemas.docstrings import read_docstring

GOOGLE = """Do it.

    Long text.

    Args:
        path: The path
            of the file.

        limit (int, optional): At most.
        *parts: More: really.

    Returns:
        Nothing.
    """

NUMPY = """Do it.

    Long text.

    Parameters
    ----------
    path : str
        The path
        of the file.
    limit : int, optional
        At most.
    *parts
        More: really.

    Returns
    -------
    None
        Nothing.
    """

REST = """Do it.

    Long text.

    :param path: The path
        of the file.
    :type path: str
    :param int limit: At most.
    :param parts: More: really.
    :returns: Nothing.
    :raises OSError: always
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST])
def test_parameters_are_read_and_leave_the_description(text: str) -> None:
    description, parameters = read_docstring(text)
    assert parameters == {"path": "The path of the file.", "limit": "At most.", "parts": "More: really."}
    assert description.startswith("Do it.\n\nLong text.")
    for gone in ("Args", "Parameters", ":param", "The path", "At most", "OSError"):
        assert gone not in description


def test_returns_stay_where_they_are_a_section() -> None:
    assert read_docstring(GOOGLE).description.endswith("Returns:\n    Nothing.")
    assert read_docstring(NUMPY).description.endswith("Returns\n-------\nNone\n    Nothing.")


@pytest.mark.parametrize(
    "text", [None, "", "Args:", "Args:\nnot indented: text", "One line.", "Parameters\n----------"]
)
def test_odd_docstrings_do_no_harm(text: str | None) -> None:
    assert read_docstring(text).parameters == {}


def test_two_names_share_a_text() -> None:
    assert read_docstring("X.\n\nArgs:\n    a, b: Both.").parameters == {"a": "Both.", "b": "Both."}


def test_text_after_the_section_is_kept() -> None:
    text = "X.\n\nArgs:\n    a: A.\n\nAfter: all."
    assert read_docstring(text) == ("X.\n\nAfter: all.", {"a": "A."})
