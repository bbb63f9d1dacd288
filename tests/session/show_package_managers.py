"""pip, npm, git, Node and Java with a list of domains: what they need comes from the index, everything else fails fast.

Run by `scripts/package_managers`: they take seconds.
"""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.package_index import NAME, SAID, PackageIndex
from tests.session import test_network_lists

home, index, workspace = test_network_lists.home, test_network_lists.index, test_network_lists.workspace

FAST_SECONDS = 30.0
"""Far below what programs wait for a network that does not answer."""
INSTALLS = {
    "pip": (
        "{python} -m venv --without-pip v && {python} -m pip --python v/bin/python install -q --index-url {url}/simple "
        "tiny-package && v/bin/python -c 'import tiny_package; print(tiny_package.SAID)'"
    ),
    "npm": "npm install --registry {url}/ --no-audit --no-fund tiny && node -e 'console.log(require(\"tiny\"))'",
    "git": "git clone -q {url}/project.git cloned && cat cloned/said",
    "git over http": "git clone -q http://{name}/project.git cloned && cat cloned/said",
    "node without a proxy": (
        'NODE_USE_ENV_PROXY= HTTPS_PROXY= node -e \'fetch("{url}/project.git/HEAD").then(() => console.log("{said}"))\''
    ),
    "java": (
        "cat > Get.java << 'END'\n"
        "public class Get {{ public static void main(String[] names) throws Exception {{\n"
        '  new java.net.URL("http://" + names[0] + "/project.git/HEAD").openStream().read();\n'
        '  System.out.println("{said}"); }} }}\nEND\n'
        "java Get.java {name}"
    ),
}
LOOK_UP = ("node without a proxy", "java")
"""They know no proxy, and cannot look up another name."""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("tool", INSTALLS)
async def test_it_installs_from_the_list_and_nowhere_else(
    index: PackageIndex,
    workspace: Path,
    home: Path,
    tool: str,
) -> None:
    if shutil.which(tool.split(maxsplit=1)[0]) is None and tool != "pip":
        pytest.skip(f"{tool} is missing")
    said = {"python": os.path.realpath(sys.executable), "name": NAME, "url": f"https://{NAME}", "said": SAID.strip()}
    environment = f"export HOME={workspace}; "
    async with test_network_lists.opened(index.policy(), workspace, approval="never", seconds=150) as session:
        text = await session.run(environment + INSTALLS[tool].format(**said))
        assert SAID.strip() in text, text
        shutil.rmtree(workspace / "cloned", ignore_errors=True)
        begun = time.monotonic()
        elsewhere = INSTALLS[tool].replace("tiny", "other").replace("-q", "-q --retries 0" if tool == "pip" else "-q")
        refused = await session.run(
            environment + elsewhere.format(**said | {"name": "other.example.com", "url": "https://other.example.com"})
        )
        if tool not in LOOK_UP:
            assert "other.example.com is not an allowed domain" in refused, refused
        assert SAID.strip() not in refused
        assert time.monotonic() - begun < FAST_SECONDS
