"""The pytest fixture `scripted_model`, registered through the entry point `pytest11`."""

from collections.abc import Iterator

import pytest

from ferrule.testing.model import ScriptedModel


@pytest.fixture
def scripted_model() -> Iterator[ScriptedModel]:
    """Yield a running model server with an empty script; `add` steps to it. A request that does not fit the script
    fails the test at its end; unused steps fail it only through `scripted_model.check()`."""
    with ScriptedModel() as model:
        yield model
        model.check(complete=False)
