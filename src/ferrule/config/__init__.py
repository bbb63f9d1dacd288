"""From `config.toml` files, `-c` and flags to the settings of a session.

    load(Sources(cwd="/work/tree", assignments=("model=gpt-5.5",))).settings

`keys.py` lists what can be configured, `check.py` explains errors, `layers.py` merges layers, `resolve.py` turns the
result into settings, and only `load.py` touches files. docs/configuration.md is the user's view.
"""

from ferrule.config.layers import Layer
from ferrule.config.load import CONFIG_FILE, Sources, ferrule_home, load, project_root
from ferrule.config.resolve import Configuration

__all__ = ["CONFIG_FILE", "Configuration", "Layer", "Sources", "ferrule_home", "load", "project_root"]
