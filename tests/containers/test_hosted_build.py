"""`ferrule runtime build --hosted`, with a stand-in for the tool that makes Debian roots."""

import os
import sys
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.containers import hosted_build
from ferrule.containers.hosted_build import NO_TOOL, PATH, build_hosted
from ferrule.containers.images import ImageError, Images
from tests.containers.layouts import file, layer

TOOL = """#!{python}
import os, shutil, sys
source = os.environ["MADE_ROOT"]
if not os.path.exists(source):
    print("E: no route to the mirror")
    sys.exit(1)
print("I: done", flush=True)
shutil.copy(source, sys.argv[sys.argv.index("bookworm") + 1])
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the tool makes."""
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "mmdebstrap"
    tool.write_text(TOOL.format(python=sys.executable))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("MADE_ROOT", str(tmp_path / "made.tar"))

    async def nothing(*words: object) -> None:
        """Node.js would be fetched from the package index."""

    monkeypatch.setattr(hosted_build, "fetch_node", nothing)
    monkeypatch.setattr(hosted_build, "find_pip", lambda: None)
    return tmp_path / "made.tar"


async def test_the_root_becomes_an_image_that_the_next_one_replaces(made: Path, tmp_path: Path) -> None:
    images = Images(tmp_path / "store")
    said: list[str] = []
    for text in (b"1", b"2"):
        made.write_bytes(layer(file("etc/x", text)))
        image = await build_hosted(images, said.append, mirror=None, index_url=None)
        assert (image.root / "etc/x").read_bytes() == text
    assert image.name == "hosted" and image.config.env == (PATH,)
    assert "  done" in said
    made.unlink()
    with pytest.raises(ImageError, match=r"whether http://mirror can be reached(.|\n)*E: no route to the mirror"):
        await build_hosted(images, said.append, mirror="http://mirror", index_url=None)
    assert (images.get("hosted").root / "etc/x").read_bytes() == b"2"
    images.sweep()
    assert sorted(os.listdir(images.store)) == [".lock", "hosted"]


def test_without_the_tool_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    assert main(["runtime", "build", "--hosted"]) == 1
    assert capsys.readouterr().err == f"ferrule: {NO_TOOL}\n"
