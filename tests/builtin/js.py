"""A bench with the JavaScript tools, and where they can run."""

import shutil

import pytest

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed here")

JS = ("js_repl", "js_repl_reset")
