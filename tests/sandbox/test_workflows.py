"""What people do with their tools all day, in the sandbox: each with the real program, skipped where it is missing."""

import os
import pwd
import sys
from pathlib import Path

import pytest

from ferrule.sandbox.plan import Level
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from tests.programs import need
from tests.sandbox.conftest import OpenSandbox
from tests.sandbox.running import run
from tests.sandbox.scene import Scene
from tests.sandbox.test_cases import git

PYTHON = "/usr/bin/python3"
SECONDS = 55.0
"""Compilers and package managers take their time on a busy machine; a test has a minute."""
FORK_SERVERS = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.shared_memory import SharedMemory

def square(number):
    return number * number

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(square, range(4)) == [0, 1, 4, 9]
    for method in ("spawn", "forkserver"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
            assert list(pool.map(square, range(4))) == [0, 1, 4, 9]
    queue = multiprocessing.Queue()
    queue.put(1)
    assert queue.get() == 1
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        shared["x"] = 1
        assert dict(shared) == {"x": 1}
    memory = SharedMemory(create=True, size=10_000_000)
    memory.buf[-1] = 7
    other = SharedMemory(memory.name)
    assert other.buf[9_999_999] == 7
    other.close()
    memory.close()
    memory.unlink()
    print("all work")
"""
SQLITE = """
import sqlite3
for path in ("/tmp/ferrule-workflow.db", "here.db"):
    one, other = sqlite3.connect(path), sqlite3.connect(path)
    one.execute("pragma journal_mode = wal")
    one.execute("drop table if exists t")
    one.execute("create table t (x)")
    one.execute("insert into t values (1)")
    one.commit()
    assert other.execute("select x from t").fetchone() == (1,)
    one.close(); other.close()
import os; os.unlink("/tmp/ferrule-workflow.db")
print("all work")
"""
JAVA = """
import java.net.*; import java.nio.channels.*; import java.nio.file.*;
public class Main { public static void main(String[] a) throws Exception {
  Selector.open().close();
  new DatagramSocket(0, InetAddress.getLoopbackAddress()).close();
  ServerSocketChannel s = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
  s.bind(UnixDomainSocketAddress.of("s.sock")); s.close();
  if (!NetworkInterface.getNetworkInterfaces().hasMoreElements()) throw new Exception("no interface");
  System.out.println("all work"); } }
"""
SETUP = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "thing"
version = "1.0"
[project.scripts]
thing = "thing:main"
[tool.setuptools]
py-modules = ["thing"]
"""
PAGE = "<p id=x></p><script>document.getElementById('x').textContent = 'all ' + 'work'</script>"
PLAYWRIGHT = """
import pathlib, shutil
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
    page = browser.new_page()
    page.goto(pathlib.Path("p.html").absolute().as_uri())
    page.screenshot(path="p.png")
    print(page.inner_text("#x"))
    browser.close()
"""
FILES: dict[str, dict[str, str]] = {
    "multiprocessing": {"main.py": FORK_SERVERS},
    "sqlite": {"main.py": SQLITE},
    "java": {"Main.java": JAVA},
    "pip": {"pyproject.toml": SETUP, "thing.py": "def main():\n    print('all work')\n"},
    "npm": {
        "package.json": '{"name": "p", "version": "1.0.0", "dependencies": {"dep": "file:dep"},'
        ' "scripts": {"test": "node -e \\"console.log(require(\'dep\'))\\""}}',
        "dep/package.json": '{"name": "dep", "version": "1.0.0"}',
        "dep/index.js": "module.exports = 'all work'\n",
    },
    "cargo": {
        "Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/main.rs": 'fn main() { println!("all work"); }\n#[test] fn t() { assert_eq!(1 + 1, 2); }\n',
    },
    "go": {
        "go.mod": "module p\ngo 1.19\n",
        "main.go": 'package main\nfunc main() { println("all work") }\n',
        "main_test.go": 'package main\nimport "testing"\nfunc TestMain_(t *testing.T) { main() }\n',
    },
    "uv": {
        "pyproject.toml": SETUP,
        "thing.py": "def main():\n    print('all work')\n",
        "uv.toml": 'no-index = true\nno-build-isolation = true\npython-preference = "only-system"\n',
    },
    "ccache": {"p.c": '#include <stdio.h>\nint main(void) { puts("all work"); return 0; }\n'},
    "chromium": {"p.html": PAGE},
    "playwright": {"p.html": PAGE, "main.py": PLAYWRIGHT},
    "cmake": {
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.5)\nproject(p C)\nadd_executable(p p.c)\n",
        "p.c": '#include <stdio.h>\nint main(void) { puts("all work"); return 0; }\n',
    },
    "make": {
        "Makefile": "p: p.c\n\t$(CC) -o $@ $<\n",
        "p.c": '#include <stdio.h>\nint main(void) { puts("all work"); return 0; }\n',
    },
    "xdist": {"test_p.py": "import pytest\n@pytest.mark.parametrize('n', range(8))\ndef test_n(n):\n    pass\n"},
}  # fmt: skip
XDIST = f"""
PYTHONPATH= PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q -p xdist -p no:cacheprovider -n 2 test_p.py |
grep -q '8 passed' && echo all work
"""
VENV = f"""
{PYTHON} -m venv --system-site-packages --without-pip v &&
v/bin/python -m pip -q install --no-index --no-deps --no-build-isolation . && v/bin/thing
"""
UV = f"""
export UV_CACHE_DIR=$PWD/c UV_OFFLINE=1
uv venv -q --system-site-packages -p {PYTHON} v && VIRTUAL_ENV=v uv pip install -q --no-deps . &&
v/bin/thing | grep -q 'all work' && uv run -q --no-project python -c "print('all work')"
"""
CCACHE = """
export CCACHE_DIR=$PWD/c
ccache cc -c p.c -o p.o && ccache cc -c p.c -o q.o && ccache --print-stats | grep -qP 'direct_cache_hit\\t1' &&
cc -o p q.o && ./p
"""
CHROMIUM = """
chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/u --screenshot=$PWD/p.png --dump-dom \
    file://$PWD/p.html 2> /dev/null | grep -o 'all work'
"""
CLONE = """
git init -q a && cd a && git config user.email a@b && git config user.name n && echo x > f && git add f &&
git commit -qm one && cd .. && git clone -q a b && cd b && git log --oneline | grep -q one &&
git worktree add -q ../c && cat ../c/f > /dev/null && git clone -q --bare ../a ../d.git &&
git -C ../d.git rev-parse -q --verify HEAD > /dev/null && echo all work
"""
DATABASE = """
initdb -D d -A trust > log 2>&1 &&
pg_ctl -D d -o '-k /tmp -c listen_addresses=127.0.0.1 -p 54399' -w start > log 2>&1 &&
psql -h /tmp -p 54399 postgres -tAc "create table t as select 'all work' x" > log 2>&1 &&
psql -h 127.0.0.1 -p 54399 postgres -tAc 'select x from t' || cat log
pg_ctl -D d -m immediate stop > log 2>&1
"""
TAR = """
mkdir t && echo x > t/f && ln -s f t/l && tar czf t.tgz t && rm -r t && tar xzf t.tgz && cat t/l > /dev/null &&
echo all work
"""
WORKFLOWS: list[tuple[str, tuple[str, ...], str]] = [
    ("multiprocessing", (PYTHON,), f"{PYTHON} main.py"),
    ("sqlite", (PYTHON,), f"{PYTHON} main.py"),
    ("java", ("javac", "java"), "javac Main.java && java -Xshare:auto Main"),
    ("pip", (PYTHON,), VENV),
    ("npm", ("npm", "node"), "npm install -s --no-audit --no-fund --offline --cache ./cache && npm test -s"),
    ("cargo", ("cargo",), "cargo test -q --offline > /dev/null && cargo run -q --offline"),
    ("go", ("go",), "export GOCACHE=$PWD/c GOTOOLCHAIN=local; go test . > log && go run ."),
    ("uv", ("uv",), UV),
    ("ccache", ("ccache", "cc"), CCACHE),
    ("chromium", ("chromium",), CHROMIUM),
    ("playwright", ("playwright", "chromium"), "$(dirname $(command -v playwright))/python main.py"),
    ("cmake", ("cmake", "cc"), "cmake -S . -B b > /dev/null && cmake --build b > /dev/null && b/p"),
    ("make", ("make", "cc"), "make -sj2 && ./p"),
    ("xdist", (sys.executable,), XDIST),
    ("git", ("git",), CLONE),
    ("tar", ("tar",), TAR),
]


@pytest.mark.parametrize(("name", "programs", "script"), WORKFLOWS, ids=[name for name, _, _ in WORKFLOWS])
async def test_n016_n017_tools_work(
    open_sandbox: OpenSandbox, workspace: Path, name: str, programs: tuple[str, ...], script: str
) -> None:
    need(*programs)
    for path, content in FILES.get(name, {}).items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(content)
    outcome = await run(await open_sandbox(), script, str(workspace), seconds=SECONDS)
    assert (outcome.status.code, outcome.output.splitlines()[-1:]) == (0, ["all work"]), outcome.output


async def test_n017_a_server_and_curl_on_loopback(open_sandbox: OpenSandbox, workspace: Path) -> None:
    need("curl")
    (workspace / "f").write_text("all work\n")
    script = f"{PYTHON} -m http.server 8198 --bind 127.0.0.1 > log 2>&1 &"
    script += "curl -s --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:8198/f"
    outcome = await run(await open_sandbox(), script, str(workspace))
    assert outcome.output == "all work\n"


async def test_n017_a_database_server(namespaces: None) -> None:
    """PostgreSQL does not run as root, and wants a user that has a name."""
    need("initdb", "postgres", "psql")
    with Scene(os.getuid() or pwd.getpwnam("nobody").pw_uid) as scene:
        sandbox = Sandbox(Protection(scene.plan, scene.home), levels=[Level.NAMESPACES], interpreter=scene.interpreter)
        try:
            outcome = await run(sandbox, DATABASE, str(scene.values["ws"]), seconds=SECONDS)
        finally:
            await sandbox.close()
    assert outcome.output == "all work\n"


async def test_n019_what_leaves_its_shell_is_told(open_sandbox: OpenSandbox, workspace: Path) -> None:
    outcome = await run(
        await open_sandbox(), "nohup setsid sleep 300 > /dev/null 2>&1 & disown; echo ok", str(workspace)
    )
    assert outcome.output == "ok\n"
    assert outcome.left is not None and outcome.left.startswith("Ended with the command: ")


async def test_n007_two_sandboxes_leave_nothing_behind(open_sandbox: OpenSandbox, workspace: Path) -> None:
    git("init", ".", cwd=workspace)
    first, second = await open_sandbox(), await open_sandbox()
    assert (await run(first, "git status --porcelain", str(workspace))).output == ""
    assert (await run(second, "git status --porcelain", str(workspace))).output == ""
    await first.close()
    assert "Read-only" in (await run(second, "echo x > .git/config", str(workspace))).output
    await second.close()
    assert sorted(os.listdir(workspace)) == [".git"]
