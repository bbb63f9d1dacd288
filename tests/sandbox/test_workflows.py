"""What people do with their tools all day, in the sandbox: each with the real program, skipped where it is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.conftest import OpenSandbox
from tests.sandbox.running import run
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
    "go": {"go.mod": "module p\ngo 1.21\n", "main.go": 'package main\nfunc main() { println("all work") }\n'},
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
CLONE = """
git init -q a && cd a && git config user.email a@b && git config user.name n && echo x > f && git add f &&
git commit -qm one && cd .. && git clone -q a b && cd b && git log --oneline | grep -q one &&
git worktree add -q ../c && cat ../c/f > /dev/null && git clone -q --bare ../a ../d.git &&
git -C ../d.git rev-parse -q --verify HEAD > /dev/null && echo all work
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
    ("go", ("go",), "GOCACHE=$PWD/c GOFLAGS=-mod=mod go run . 2>&1"),
    ("cmake", ("cmake", "cc"), "cmake -S . -B b > /dev/null && cmake --build b > /dev/null && b/p"),
    ("make", ("make", "cc"), "make -sj2 && ./p"),
    ("xdist", (sys.executable,), XDIST),
    ("git", ("git",), CLONE),
    ("tar", ("tar",), TAR),
]


def is_usable(program: str) -> bool:
    """Whether the program is there and runs: rustup's proxies do not with an empty HOME."""
    ask = "version" if program == "go" else "--version"
    if shutil.which(program) is None:
        return False
    return subprocess.run([program, ask], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize(("name", "programs", "script"), WORKFLOWS, ids=[name for name, _, _ in WORKFLOWS])
async def test_n016_n017_tools_work(
    open_sandbox: OpenSandbox, workspace: Path, name: str, programs: tuple[str, ...], script: str
) -> None:
    missing = [program for program in programs if not is_usable(program)]
    if missing:
        pytest.skip(f"not installed for this HOME: {', '.join(missing)}")
    for path, content in FILES.get(name, {}).items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(content)
    outcome = await run(await open_sandbox(), script, str(workspace), seconds=SECONDS)
    assert (outcome.status.code, outcome.output.splitlines()[-1:]) == (0, ["all work"]), outcome.output


async def test_n017_a_server_and_curl_on_loopback(open_sandbox: OpenSandbox, workspace: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("not installed: curl")
    (workspace / "f").write_text("all work\n")
    script = f"{PYTHON} -m http.server 8198 --bind 127.0.0.1 > log 2>&1 &"
    script += "curl -s --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:8198/f"
    outcome = await run(await open_sandbox(), script, str(workspace))
    assert outcome.output == "all work\n"


async def test_n017_a_database_server(open_sandbox: OpenSandbox, workspace: Path) -> None:
    if shutil.which("initdb") is None or shutil.which("postgres") is None:
        pytest.skip("not installed: initdb, postgres")
    if os.getuid() == 0:
        pytest.skip("PostgreSQL does not run as root")
    script = "initdb -D d -A trust > log 2>&1 && pg_ctl -D d -o '-k /tmp -h \"\"' -w start > log 2>&1 && "
    script += "psql -h /tmp postgres -tAc \"select 'all work'\"; pg_ctl -D d -m immediate stop > log 2>&1"
    assert (await run(await open_sandbox(), script, str(workspace))).output == "all work\n"


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
