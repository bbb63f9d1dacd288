"""The task of `ferrule demo`: two small files, a failing test, and the scripted model's answers."""

import shlex

from ferrule.testing import Step, function_call, reasoning, step

PROMPT = "The tests fail. Find out why, fix it, and show that they pass."

FILES = {
    "slugs.py": '''\
"""Titles as they stand in URLs."""

import re


def slugify(title: str, limit: int = 40) -> str:
    """The words of a title in lower case, joined by hyphens; at most `limit` characters, no word cut in two."""
    words = re.findall(r"[a-z0-9]+", title)
    return "-".join(words)[:limit]
''',
    "test_slugs.py": """\
import unittest

from slugs import slugify


class Slugs(unittest.TestCase):
    def test_capital_letters_count(self):
        self.assertEqual(slugify("Hello, World"), "hello-world")

    def test_no_word_is_cut(self):
        self.assertEqual(slugify("one two three", limit=10), "one-two")


if __name__ == "__main__":
    unittest.main()
""",
}

PATCH = """\
*** Begin Patch
*** Update File: slugs.py
@@
-    words = re.findall(r"[a-z0-9]+", title)
-    return "-".join(words)[:limit]
+    slug = ""
+    for word in re.findall(r"[a-z0-9]+", title.lower()):
+        longer = f"{slug}-{word}" if slug else word
+        if len(longer) > limit:
+            break
+        slug = longer
+    return slug
*** End Patch
"""

_STEPS = ("Run the tests and read the code", "Fix what fails", "Run the tests again")


def script(python: str, *, has_git: bool) -> list[Step]:
    """Return the model's answers. Each expects the result of the one before."""
    tests = _shell(f"{shlex.quote(python)} -B -m unittest")
    look = _shell("git log --oneline && cat slugs.py" if has_git else "ls && cat slugs.py")
    show = [_shell("git diff --stat")] if has_git else []
    return [
        step(reasoning("See the failure before looking for its cause."), _plan(0)),
        step("I run the tests first.", tests),
        step("Two failures. Now the code that they test.", look, expect="FAILED (failures=2)"),
        step(
            "`slugify` looks for lower-case letters only and cuts wherever the limit falls. I fix both in one place.",
            function_call("apply_patch", {"input": PATCH}),
            expect="re.findall",
        ),
        step(tests, *show, expect="Success. Updated the following files:\nM slugs.py"),
        step(_plan(3), expect="OK"),
        step(
            "The tests pass. `slugify` dropped capital letters, because it looked for lower-case ones before lowering "
            "the title, and it cut words in two at the limit. It now lowers the title first and adds whole words as "
            "long as they fit. Only slugs.py changed."
        ),
    ]


def _shell(command: str) -> dict[str, object]:
    return function_call("shell_command", {"command": command})


def _plan(done: int) -> dict[str, object]:
    states = ["completed"] * done + ["in_progress"] + ["pending"] * len(_STEPS)
    steps = [{"step": text, "status": state} for text, state in zip(_STEPS, states, strict=False)]
    return function_call("update_plan", {"plan": steps})
