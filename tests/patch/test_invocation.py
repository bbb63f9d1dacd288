import shutil
import subprocess
from pathlib import Path

import pytest

from ferrule.patch.invocation import BarePatchError, find_patch, find_patch_in_script
from tests.patch.tree import patch

BODY = patch("*** Add File: x", "+a $x `b` \\n 'q' \"r\"").rstrip("\n")
TABBED = "\n".join("\t" + line for line in BODY.split("\n"))

EXACT = [
    (f"apply_patch <<'EOF'\n{BODY}\nEOF\n", None),
    (f'apply_patch <<"EOF"\n{BODY}\nEOF', None),
    (f"apply_patch <<\\EOF\n{BODY}\nEOF", None),
    (f"apply_patch <<E'O'\"F\"\n{BODY}\nEOF", None),
    (f"apply_patch << 'a word'\n{BODY}\na word\n", None),
    (f"apply_patch <<-'EOF'\n{TABBED}\n\tEOF\n", None),
    (f"apply_patch 0<<'EOF'\n{BODY}\nEOF\n", None),
    (f"<<'EOF' apply_patch\n{BODY}\nEOF\n", None),
    (f"  apply_patch <<'EOF'  # edit\n{BODY}\nEOF\n\n# done\n", None),
    (f"# edit\n\napply_patch \\\n<<'EOF'\n{BODY}\nEOF\n", None),
    (f"apply_patch <<'EOF'\n{BODY}", None),
    (f"cd su\\\nb && apply_patch <<'EOF'\n{BODY}\nEOF\n", "sub"),
    (f"cd sub && apply_patch <<'EOF'\n{BODY}\nEOF\n", "sub"),
    (f"cd 'a b' && apply_patch <<'EOF'\n{BODY}\nEOF\n", "a b"),
    (f"cd \"a b\"/c\\ d &&\n apply_patch <<'EOF'\n{BODY}\nEOF\n", "a b/c d"),
    ("apply_patch '*** Begin Patch\n*** Delete File: x\n*** End Patch'", None),
    ('cd sub && apply_patch "*** Begin Patch\n*** Delete File: \\"x\\"\n*** End Patch"', "sub"),
]

ORDINARY = [
    "",
    "apply_patch",
    "cd sub",
    "ls # apply_patch",
    f"echo x; apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"apply_patch <<'EOF' && echo done\n{BODY}\nEOF\n",
    f"apply_patch <<'EOF'; echo done\n{BODY}\nEOF\n",
    f"apply_patch <<'EOF' | tee log\n{BODY}\nEOF\n",
    f"apply_patch <<'EOF' > log\n{BODY}\nEOF\n",
    f"apply_patch <<'EOF'\n{BODY}\nEOF\necho done\n",
    f"apply_patch -v <<'EOF'\n{BODY}\nEOF\n",
    f"apply_patch <<'EOF' <<'B'\n{BODY}\nEOF\nx\nB\n",
    f"cd a b && apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"cd a; apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"cd a || apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"cd a && cd b && apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"cd $HOME && apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"cd ~/x && apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"cd - && apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"cd && apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"(apply_patch <<'EOF'\n{BODY}\nEOF\n)",
    f"X=1 apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"./apply_patch <<'EOF'\n{BODY}\nEOF\n",
    f"apply_patch_x <<'EOF'\n{BODY}\nEOF\n",
    f"! apply_patch <<'EOF'\n{BODY}\nEOF\n",
    "apply_patch <<< 'x'",
    'apply_patch "$PATCH"',
    'apply_patch "`cat p`"',
    "apply_patch $(cat p)",
    "apply_patch 'unclosed",
    'apply_patch "unclosed',
    "apply_patch *.patch",
    "apply_patch a b",
]


@pytest.mark.parametrize(("script", "workdir"), EXACT)
def test_scripts_that_only_apply_a_patch(script: str, workdir: str | None) -> None:
    found = find_patch_in_script(script)
    assert found is not None
    assert found.workdir == workdir
    assert found.text.startswith("*** Begin Patch\n") and found.text.endswith("\n*** End Patch")


@pytest.mark.parametrize("script", ORDINARY)
def test_every_other_script_is_an_ordinary_command(script: str) -> None:
    assert find_patch_in_script(script) is None
    assert find_patch(["bash", "-lc", script]) is None


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the oracle")
@pytest.mark.parametrize(("script", "workdir"), EXACT)
def test_the_text_is_what_bash_would_hand_over(tmp_path: Path, script: str, workdir: str | None) -> None:
    """The whole corpus against the shell itself: the function prints its folder, its argument or its input."""
    (tmp_path / "home" / (workdir or ".")).mkdir(parents=True, exist_ok=True)
    function = 'apply_patch() { pwd; if [ $# -gt 0 ]; then printf %s "$1"; else cat; fi; }\n'
    ran = subprocess.run(
        ["bash", "-c", function + script], cwd=tmp_path / "home", capture_output=True, text=True, check=True
    )
    folder, _, text = ran.stdout.partition("\n")
    found = find_patch_in_script(script)
    assert found is not None
    assert found.text == text.rstrip("\n")
    assert Path(folder) == tmp_path / "home" / (found.workdir or "")


def test_an_unquoted_heredoc_is_taken_literally() -> None:
    found = find_patch_in_script(f"apply_patch <<EOF\n{BODY}\nEOF\n")
    assert found is not None
    assert found.text == BODY


def test_crlf_scripts() -> None:
    found = find_patch_in_script(f"apply_patch <<'EOF'\n{BODY}\nEOF\n".replace("\n", "\r\n"))
    assert found is not None
    assert found.text.replace("\r", "") == BODY


@pytest.mark.parametrize("shell", ["bash", "/usr/bin/zsh", "sh", "BASH.EXE"])
@pytest.mark.parametrize("flags", [["-c"], ["-lc"], ["-fc"], ["-l", "-c"]])
def test_shells(shell: str, flags: list[str]) -> None:
    assert find_patch([shell, *flags, EXACT[0][0]]) is not None


@pytest.mark.parametrize(
    "argv", [[], ["apply_patch"], ["apply_patch", BODY, "x"], ["python", "-c", EXACT[0][0]], ["bash", EXACT[0][0]]]
)
def test_other_commands(argv: list[str]) -> None:
    assert find_patch(argv) is None


@pytest.mark.parametrize("argv", [[BODY], ["bash", "-lc", BODY], ["sh", "-c", f"<<'EOF'\n{BODY}\nEOF"]])
def test_a_patch_without_a_command_is_answered_with_the_right_form(argv: list[str]) -> None:
    with pytest.raises(BarePatchError, match="patch detected without explicit call to apply_patch"):
        find_patch(argv)
