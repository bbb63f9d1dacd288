"""The pytest fixture `scripted_model`; pytest finds it by the entry point `pytest11`."""

from collections.abc import Iterator

import pytest

from .model import ScriptedModel


@pytest.fixture
def scripted_model() -> Iterator[ScriptedModel]:
    """A running model server with an empty script; `add` steps to it. A request that does not fit the script fails the
    test at its end; steps that were never asked for fail it only by `scripted_model.check()`."""
    with ScriptedModel() as model:
        yield model
        model.check(complete=False)
