"""From `config.toml` files, `-c` and flags to the settings of a session.

    load(Sources(cwd="/work/tree", assignments=("model=gpt-5.5",))).settings

`keys.py` says what can be configured, `check.py` explains what is wrong, `layers.py` lays one over the other,
`resolve.py` makes settings of the result, and `load.py` alone touches files. docs/configuration.md is the user's view.
"""

from ferrule.config.layers import Layer
from ferrule.config.load import CONFIG_FILE, Sources, ferrule_home, load, project_root
from ferrule.config.resolve import Configuration

__all__ = ["CONFIG_FILE", "Configuration", "Layer", "Sources", "ferrule_home", "load", "project_root"]
