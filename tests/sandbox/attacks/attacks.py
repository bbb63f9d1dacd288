"""Every known way out of the sandbox, tried one after the other. Standard library only; runs inside, under any Python.

`attacks.py SCENE` reads the scene (a JSON file, see `scene.py`), prints one JSON object: attack -> what happened, where
`OPEN` means that the kernel let it happen and everything else is why not. What counts is the effect on the host, which
the test looks at afterwards.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading

libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
NUMBERS = {  # x86-64, aarch64
    "clone": (56, 220), "mount": (165, 40), "ptrace": (101, 117), "keyctl": (250, 219), "bpf": (321, 280),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "open_by_handle_at": (304, 265), "execveat": (322, 281),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "unshare": (272, 97), "setns": (308, 268),
    "chroot": (161, 51), "pivot_root": (155, 41), "kexec_load": (246, 104), "init_module": (175, 105),
    "syslog": (103, 116), "add_key": (248, 217), "clock_settime": (227, 112),
}  # fmt: skip
ATTACKS = {}


def attack(function):
    ATTACKS[function.__name__] = function
    return function


def raw(name, *arguments):
    number = NUMBERS[name][0 if X86 else 1] if isinstance(name, str) else name
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "OPEN"


def write(path, text="pwned"):
    with open(path, "w") as file:
        file.write(text)
    return "OPEN"


def child(function):
    """Run in a fork, so that success leaves the other attacks alone."""
    read, wrote = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            outcome = function() or "OPEN"
        except OSError as error:
            outcome = errno.errorcode.get(error.errno, str(error))
        except BaseException as error:
            outcome = type(error).__name__
        os.write(wrote, str(outcome).encode())
        os._exit(0)
    os.close(wrote)
    with os.fdopen(read) as file:
        outcome = file.read()
    os.waitpid(pid, 0)
    return outcome


@attack
def inherited_descriptors(s):
    """B137: nothing but the three streams."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            own.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            pass  # the descriptor of the listing itself
    more = {fd: place for fd, place in own if fd > 2}
    return f"OPEN {more}" if more else "none"


# Files: git metadata


@attack
def write_git_hook(s):
    return write(s["ws"] + "/.git/hooks/pre-commit")


@attack
def write_git_config(s):
    return write(s["ws"] + "/.git/config", "[core]\n\thooksPath = h\n")


@attack
def write_codex_config(s):
    os.makedirs(s["ws"] + "/.codex", exist_ok=True)
    return write(s["ws"] + "/.codex/config.toml")


@attack
def write_ferrule_config(s):
    os.makedirs(s["ws"] + "/.ferrule", exist_ok=True)
    return write(s["ws"] + "/.ferrule/config.toml")


@attack
def write_agents_skill(s):
    os.makedirs(s["ws"] + "/.agents", exist_ok=True)
    return write(s["ws"] + "/.agents/skill")


@attack
def rename_git_away(s):
    os.rename(s["ws"] + "/.git", s["ws"] + "/.git2")
    return "OPEN"


@attack
def exchange_git(s):
    """renameat2 with RENAME_EXCHANGE."""
    os.makedirs(s["ws"] + "/fake", exist_ok=True)
    number = 316 if X86 else 276
    raw(number, -100, (s["ws"] + "/fake").encode(), -100, (s["ws"] + "/.git").encode(), 2)
    return "OPEN"


@attack
def git_through_link(s):
    """B134: a link in the workspace to what is protected."""
    os.symlink(".git", s["ws"] + "/lnk")
    return write(s["ws"] + "/lnk/config")


@attack
def mkdir_git_missing(s):
    os.makedirs(s["nogit"] + "/.git/hooks")
    return write(s["nogit"] + "/.git/hooks/pre-commit")


@attack
def replace_placeholder(s):
    os.rmdir(s["nogit"] + "/.git")
    os.mkdir(s["nogit"] + "/.git")
    return "OPEN"


@attack
def rename_over_placeholder(s):
    os.makedirs(s["nogit"] + "/mine/hooks", exist_ok=True)
    os.rename(s["nogit"] + "/mine", s["nogit"] + "/.git")
    return "OPEN"


@attack
def write_second_root_git(s):
    return write(s["second"] + "/.git/config")


@attack
def gitfile_replace(s):
    return write(s["worktree"] + "/.git")


@attack
def gitfile_rename(s):
    write(s["worktree"] + "/other")
    os.rename(s["worktree"] + "/other", s["worktree"] + "/.git")
    return "OPEN"


@attack
def gitfile_target_write(s):
    return write(s["worktree"] + "/meta/wt.git/config")


@attack
def gitfile_target_parent_renamed(s):
    os.rename(s["worktree"] + "/meta", s["worktree"] + "/meta2")
    return "OPEN"


@attack
def gitfile_commondir_write(s):
    return write(s["worktree"] + "/meta/common.git/config")


@attack
def git_symlink_replace(s):
    os.unlink(s["symlinked"] + "/.git")
    os.mkdir(s["symlinked"] + "/.git")
    return "OPEN"


@attack
def git_symlink_target(s):
    return write(s["symlinked"] + "/meta/p.git/config")


@attack
def nested_repository_hook(s):
    """B133: repositories below the root, found at the start."""
    return write(s["ws"] + "/vendor/s/.git/hooks/post-checkout")


@attack
def nested_repository_config(s):
    return write(s["ws"] + "/vendor/s/.git/config")


# Files: outside of the roots


@attack
def write_outside(s):
    return write(s["out"] + "/new")


@attack
def overwrite_outside(s):
    return write(s["victim"])


@attack
def write_through_symlink(s):
    os.symlink(s["out"], s["ws"] + "/way")
    return write(s["ws"] + "/way/via-link")


@attack
def hardlink_out(s):
    os.link(s["victim"], s["ws"] + "/hard")
    return write(s["ws"] + "/hard")


@attack
def rename_root(s):
    os.rename(s["ws"], s["ws"] + "-moved")
    return "OPEN"


@attack
def rename_inner_root_parent(s):
    """A root below another root: its parent must not be renamed away."""
    os.rename(s["outer"] + "/a", s["outer"] + "/b")
    os.makedirs(s["outer"] + "/a/inner/.git/hooks")
    return "OPEN"


@attack
def write_ferrule_home(s):
    return write(s["home"] + "/rules/evil.rules")


@attack
def rename_ferrule_home_parent(s):
    parent = os.path.dirname(s["home"])
    os.rename(parent, parent + "2")
    return "OPEN"


@attack
def write_lock_file(s):
    return write(s["state"] + "/lock")


@attack
def write_locks_for_writing(s):
    fd = os.open(s["state"] + "/lock", os.O_RDONLY)
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", 1, 0, 0, 0, 0))
    return "OPEN"


@attack
def chmod_out(s):
    os.chmod(s["victim"], 0o777)
    return "OPEN"


@attack
def fchmod_out(s):
    fd = os.open(s["victim"], os.O_RDONLY)
    os.fchmod(fd, 0o777)
    return "OPEN"


@attack
def chown_out(s):
    os.chown(s["victim"], os.getuid(), os.getgid())
    return "OPEN"


@attack
def xattr_out(s):
    os.setxattr(s["victim"], "user.evil", b"1")
    return "OPEN"


@attack
def truncate_out(s):
    os.truncate(s["victim"], 0)
    return "OPEN"


@attack
def utime_out(s):
    os.utime(s["victim"], (1, 1))
    return "OPEN"


@attack
def memfd_execveat(s):
    """An executable that is no file: its effect is confined all the same."""
    memory = os.memfd_create("evil")
    os.write(memory, f"#!/bin/sh\necho pwned > {s['out']}/memfd\n".encode())
    done = subprocess.run([f"/proc/self/fd/{memory}"], pass_fds=[memory], stderr=subprocess.PIPE, check=False)
    return "OPEN" if done.returncode == 0 else "refused"


@attack
def setuid_program(s):
    if os.getuid() == 0 or not s["setuid_id"]:
        return "not tried"
    shown = subprocess.run([s["setuid_id"], "-u"], capture_output=True, check=False).stdout.strip()
    return "OPEN" if shown == b"0" else "refused"


@attack
def setuid_file_in_workspace(s):
    """A setuid file of one's own is harmless; the mount is nosuid all the same."""
    return "OPEN" if not os.statvfs(s["ws"]).f_flag & os.ST_NOSUID else "nosuid"


# Mounts and namespaces


@attack
def mount_tmpfs(s):
    return call(libc.mount(b"t", s["ws"].encode(), b"tmpfs", 0, None))


@attack
def remount_writable(s):
    return call(libc.mount(None, b"/", None, ctypes.c_ulong(32 | 4096), None))


@attack
def bind_over(s):
    return call(libc.mount(s["ws"].encode(), s["out"].encode(), None, ctypes.c_ulong(4096), None))


@attack
def new_mount_api(s):
    raw(430, b"tmpfs", 0)
    return "OPEN"


@attack
def mount_setattr_writable(s):
    raw(442, -100, b"/", 0x8000, struct.pack("QQQQ", 0, 1, 0, 0), 32)
    return "OPEN"


@attack
def umount_git(s):
    return call(libc.umount2((s["ws"] + "/.git").encode(), 2))


@attack
def change_root(s):
    return call(libc.chroot(s["ws"].encode()))


@attack
def unshare_user(s):
    return child(lambda: call(libc.unshare(0x10000000)))


@attack
def unshare_mount(s):
    return child(lambda: call(libc.unshare(0x20000)))


@attack
def clone_user(s):
    def clone():
        pid = raw("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    return child(clone)


@attack
def clone3_user(s):
    def clone():
        pid = raw(435, struct.pack("8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    return child(clone)


@attack
def join_host_namespace(s):
    fd = os.open(f"/proc/{s['victim_pid']}/ns/mnt", os.O_RDONLY)
    raw("setns", fd, 0)
    return "OPEN"


# Other processes


@attack
def proc_root_victim(s):
    return write(f"/proc/{s['victim_pid']}/root{s['out']}/viaproc")


@attack
def proc_root_init(s):
    return write(f"/proc/1/root{s['out']}/viaproc1")


@attack
def proc_cwd_init(s):
    return write(f"/proc/1/cwd/../{os.path.basename(s['out'])}/viacwd")


@attack
def proc_mem_victim(s):
    return "OPEN" if open(f"/proc/{s['victim_pid']}/mem", "r+b") else ""


@attack
def proc_mem_init(s):
    return "OPEN" if open("/proc/1/mem", "r+b") else ""


@attack
def proc_fd_init(s):
    names = os.listdir("/proc/1/fd")
    return f"OPEN {[os.readlink(f'/proc/1/fd/{name}') for name in names]}"


@attack
def proc_environ_victim(s):
    """B137: what other processes have in their environment."""
    return "OPEN" if b"SECRET" in open(f"/proc/{s['victim_pid']}/environ", "rb").read() else "other"


@attack
def proc_environ_agent(s):
    return "OPEN" if b"SECRET" in open(f"/proc/{s['agent_pid']}/environ", "rb").read() else "other"


@attack
def environ_of_any(s):
    """Whatever is visible, nothing visible may hold the secret."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                content = open(f"/proc/{name}/environ", "rb").read()
            except OSError:
                continue
            if b"SECRET" in content:
                return "OPEN"
    return "none"


@attack
def ptrace_victim(s):
    raw("ptrace", 16, s["victim_pid"], 0, 0)
    return "OPEN"


@attack
def vm_readv_victim(s):
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("PN", ctypes.addressof(buffer), 8)
    raw("process_vm_readv", s["victim_pid"], local, 1, local, 1, 0)
    return "OPEN"


@attack
def kill_victim(s):
    os.kill(s["victim_pid"], signal.SIGTERM)
    return "OPEN"


@attack
def kill_agent(s):
    os.kill(s["agent_pid"], 0)
    return "OPEN"


@attack
def kill_init(s):
    """The kernel ignores it, or the domain does not reach it."""
    os.kill(1, signal.SIGKILL)
    return "ignored"


@attack
def pidfd_victim(s):
    fd = os.pidfd_open(s["victim_pid"])
    signal.pidfd_send_signal(fd, signal.SIGTERM)
    return "OPEN"


# Sockets and the network


@attack
def tcp_to_host(s):
    with socket.create_connection(("127.0.0.1", s["tcp_port"]), 2):
        return "OPEN"


@attack
def udp_to_host(s):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"pwned", ("127.0.0.1", s["udp_port"]))
    return "sent into the private loopback"


@attack
def tcp_outside(s):
    with socket.socket() as client:
        client.settimeout(2)
        client.connect(("192.0.2.1", 80))
    return "OPEN"


def connect_unix(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(path)
    return "OPEN"


@attack
def abstract_unix(s):
    return connect_unix("\0" + s["abstract"])


@attack
def path_unix_outside(s):
    return connect_unix(s["unix_out"])


@attack
def path_unix_in_tmp(s):
    return connect_unix(s["unix_tmp"])


@attack
def path_unix_recreated(s):
    """A socket whose file was made anew since the sandbox started."""
    return connect_unix(s["unix_again"])


@attack
def path_unix_through_link(s):
    os.symlink(s["unix_out"], s["ws"] + "/sock-link")
    return connect_unix(s["ws"] + "/sock-link")


@attack
def path_unix_renamed(s):
    """A cover cannot be moved away."""
    os.rename(s["unix_tmp"], s["unix_tmp"] + "2")
    return connect_unix(s["unix_tmp"] + "2")


@attack
def path_unix_unlinked(s):
    os.unlink(s["unix_tmp"])
    return "OPEN"


@attack
def dgram_to_log(s):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"pwned", s["unix_log"])
    return "OPEN"


@attack
def dgram_pair_sendto(s):
    left, _right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.connect(s["unix_log"])
    left.send(b"pwned")
    return "OPEN"


@attack
def vsock(s):
    socket.socket(40, socket.SOCK_STREAM).close()
    return "OPEN"


@attack
def af_alg(s):
    socket.socket(38, socket.SOCK_SEQPACKET).close()
    return "OPEN"


@attack
def netlink(s):
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
    return "OPEN"


@attack
def packet(s):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    return "OPEN"


# Kernel interfaces


@attack
def io_uring(s):
    raw(425, 1, ctypes.create_string_buffer(256))
    return "OPEN"


@attack
def keyctl(s):
    raw("keyctl", 0, -3, 0)
    return "OPEN"


@attack
def add_key(s):
    raw("add_key", b"user", b"evil", b"x", 1, -4)
    return "OPEN"


@attack
def bpf(s):
    raw("bpf", 0, bytes(64), 64)
    return "OPEN"


@attack
def userfaultfd(s):
    raw("userfaultfd", 1)
    return "OPEN"


@attack
def perf_open(s):
    raw("perf_event_open", struct.pack("II", 1, 112) + bytes(104), 0, -1, -1, 0)
    return "OPEN"


@attack
def open_handle(s):
    raw("open_by_handle_at", -100, struct.pack("Ii", 8, 1) + bytes(8), 0)
    return "OPEN"


@attack
def load_module(s):
    raw("init_module", b"", 0, b"")
    return "OPEN"


@attack
def kernel_log(s):
    raw("syslog", 3, ctypes.create_string_buffer(16), 16)
    return "OPEN"


@attack
def set_clock(s):
    raw("clock_settime", 0, struct.pack("qq", 0, 0))
    return "OPEN"


@attack
def i386_entry(s):
    """`int 0x80` reaches the other system call table: getpid is 20 there and must not work."""
    if not X86:
        return "not tried"
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x48\x98\x5b\xc3")
    function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    result = function()
    return "OPEN" if result > 0 else errno.errorcode.get(-result, str(result))


@attack
def x32_entry(s):
    if not X86:
        return "not tried"
    raw(0x40000000 + 39)
    return "OPEN"


@attack
def core_pattern(s):
    fd = os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)
    os.close(fd)
    return "OPEN"


@attack
def pid_max(s):
    return write("/proc/sys/kernel/pid_max", "100000")


@attack
def sysrq(s):
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return "OPEN"


@attack
def cgroup_write(s):
    os.mkdir("/sys/fs/cgroup/ferrule-escape")
    return "OPEN"


@attack
def block_device(s):
    for name in ("vda", "sda", "nvme0n1"):
        if os.path.exists(f"/dev/{name}"):
            os.close(os.open(f"/dev/{name}", os.O_RDONLY))
            return "OPEN"
    return "none"


@attack
def make_device(s):
    os.mknod(s["ws"] + "/blk", 0o060600, os.makedev(254, 0))
    return "OPEN"


@attack
def write_dev(s):
    return write("/dev/evil")


@attack
def write_over_covers(s):
    return write("/dev/.scratch/x")


@attack
def fill_socket_cover(s):
    os.chmod("/dev/.nosock", 0o666)
    return "OPEN"


@attack
def shared_memory_leaks(s):
    """A file in /dev/shm is private; the test looks for it on the host."""
    write("/dev/shm/ferrule-escape")
    return "private"


# Terminals and descriptors


@attack
def tiocsti(s):
    fd = os.open(s.get("own_tty", "/dev/ptmx"), os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(fd, termios.TIOCSTI, b"x")
    return "OPEN"


@attack
def tiocsti_high_bits(s):
    fd = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    byte = ctypes.create_string_buffer(b"x")
    return call(libc.ioctl(fd, ctypes.c_ulong(0x1_0000_0000 | termios.TIOCSTI), byte))


@attack
def open_host_terminal(s):
    os.close(os.open(s["host_pty"], os.O_RDWR | os.O_NOCTTY))
    return "OPEN"


@attack
def lock_for_reading(s):
    """Known to be possible: a lock on a file that can be read."""
    with open(s["victim"]) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return "OPEN"


@attack
def fork_bomb(s):
    if not s["pid_bound"]:
        return "not tried"
    pids = []
    try:
        for _ in range(s["pid_bound"] + 100):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            pids.append(pid)
    except OSError as error:
        return errno.errorcode[error.errno]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
    return "OPEN"


# What must work


@attack
def ok_write_workspace(s):
    return write(s["ws"] + "/fine")


@attack
def ok_write_temporary(s):
    with tempfile.TemporaryFile() as file:  # B137
        file.write(b"x")
    return "OPEN"


@attack
def ok_socketpair(s):
    left, right = socket.socketpair()
    left.send(b"x")
    return "OPEN" if right.recv(1) == b"x" else "other"


@attack
def ok_asyncio(s):
    import asyncio

    asyncio.run(asyncio.sleep(0))
    return "OPEN"


def talk(listener, connect):
    thread = threading.Thread(target=lambda: listener.accept()[0].send(b"hi"), daemon=True)
    thread.start()
    with connect() as client:
        return "OPEN" if client.recv(2) == b"hi" else "other"


@attack
def ok_unix_inside(s):
    path = s["ws"] + "/s.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def connect():
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            return client

        return talk(listener, connect)


@attack
def ok_tcp_inside(s):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return talk(listener, lambda: socket.create_connection(listener.getsockname(), 2))


@attack
def ok_multiprocessing(s):
    import multiprocessing

    queue = multiprocessing.get_context("fork").Queue()
    process = multiprocessing.get_context("fork").Process(target=queue.put, args=("x",))
    process.start()
    answer = queue.get(timeout=5)
    process.join()
    queue.close()
    return "OPEN" if answer == "x" else "other"


@attack
def ok_git_status(s):
    for place in ("ws", "worktree", "symlinked"):
        command = ["git", "-c", "safe.directory=*", "-C", s[place], "status", "--short"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{place}: {done.stderr}"
    return "OPEN"


@attack
def ok_own_pid(s):
    return "OPEN" if os.path.exists(f"/proc/{os.getpid()}/stat") else "other"


@attack
def ok_read_disk(s):
    return "OPEN" if open(s["victim"]).read() == "original" else "other"


@attack
def ok_daemon_is_started(s):
    """The test looks for it afterwards: it must be gone."""
    subprocess.Popen(["sleep", s["daemon_seconds"]], start_new_session=True)
    return "OPEN"


def main():
    with open(sys.argv[1]) as file:
        scene = json.load(file)
    results = {}
    for name, function in ATTACKS.items():
        import time; t=time.time()
        try:
            results[name] = function(scene)
        except OSError as error:
            results[name] = errno.errorcode.get(error.errno, str(error))
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
        if time.time()-t>.2: print(name,time.time()-t,file=sys.stderr)
    print(json.dumps(results), flush=True)
    os._exit(0)  # no destructor may wait for what the attacks have left


if __name__ == "__main__":
    main()
