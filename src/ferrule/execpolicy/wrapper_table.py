"""The table of wrappers: programs that start what their words name."""

from collections.abc import Mapping

import msgspec

from ferrule.execpolicy.options import words


class Wrapper(msgspec.Struct, frozen=True):
    """Where a wrapper's own words end and the wrapped command begins.

    `flags` are the short options without a value, `valued` those with one, `optional` those whose value, if there is
    one, is the rest of the word; `long` and `long_valued` the long ones, without their dashes. An option that is not
    listed makes unknown where the command begins. `operands` counts the words before the command, `maybe` is the shape
    of one more that may stand there; `late`: options may stand behind these. `verb` are the words that must come first
    (`uv run`); `dashes`: the command stands behind `--` if there is one. `inert` are options with which nothing is
    started. `shell`: without a command it starts a shell. `script` are the options whose value a shell reads, `piped`
    those of which it reads what stands behind a `|`; `joined`: a shell reads all the words of the command, `quoted`:
    each word that has a blank. `plain` are the options with which the command runs as if it stood alone; None: never.
    `leaves` is a file that it may write itself.
    """

    flags: str = ""
    valued: str = ""
    optional: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    operands: int = 0
    maybe: str = ""
    verb: tuple[str, ...] = ()
    assignments: bool = False
    late: bool = False
    shell: bool = False
    joined: bool = False
    dashes: bool = False
    quoted: bool = False
    script: frozenset[str] = frozenset()
    piped: frozenset[str] = frozenset()
    inert: frozenset[str] = frozenset()
    plain: frozenset[str] | None = None
    leaves: str = ""


def _wrapper(
    flags: str = "",
    valued: str = "",
    long: str = "",
    long_valued: str = "",
    *,
    optional: str = "",
    operands: int = 0,
    maybe: str = "",
    plain: str | None = None,
    inert: str = "",
    script: str = "",
    piped: str = "",
    leaves: str = "",
    traits: str = "",
) -> Wrapper:
    """Make a `Wrapper` from texts. Every program takes `--help` and `--version`.

    `traits` names the fields that are True.
    """
    return Wrapper(
        flags,
        valued,
        optional,
        words(long) | {"help", "version"},
        words(long_valued),
        operands,
        maybe,
        (),
        "assignments" in traits,
        "late" in traits,
        "shell" in traits,
        "joined" in traits,
        "dashes" in traits,
        "quoted" in traits,
        words(script),
        words(piped),
        words(inert) | {"--help", "--version"},
        None if plain is None else words(plain),
        leaves,
    )


SU = _wrapper(
    "-Pflmp",
    "GTcgsw",
    "fast login no-pty preserve-environment pty",
    "command group session-command shell supp-group whitelist-environment",
    operands=1,
    traits="late shell",
    script="-c --command --session-command",
)
# Another machine's shell reads the words; what a rule forbids is not to happen there either.
SSH = _wrapper(
    "1246AaCfGgKkMNnqsTtVvXxYy",
    "BDEFIJLOPQRSWbceilmopw",
    operands=1,
    inert="-G -N -O -Q -V -W",
    traits="late shell joined",
)
# Not in the table, for it starts nothing but itself: behind its own options stands what rules are about.
GIT = _wrapper(
    "Pp",
    "Cc",
    "bare glob-pathspecs icase-pathspecs literal-pathspecs no-advice no-lazy-fetch no-optional-locks no-pager"
    " no-replace-objects noglob-pathspecs paginate",
    "attr-source config-env git-dir namespace super-prefix work-tree",
)
_ARCH = r"linux(32|64)|i[3-6]86|x86_64|athlon|uname26|(arm|aarch|ppc|power|s390|riscv|mips|sparc|ia|alpha|parisc)\w*"
_SETARCH = _wrapper(
    "3BFILRSTXZhv",
    "p",
    "32bit 3gb 4gb addr-compat-layout addr-no-randomize fdpic-funcptrs list mmap-page-zero read-implies-exec"
    " short-inode sticky-timeouts uname-2.6 verbose whole-seconds",
    "pid show",
    maybe=_ARCH,
    traits="late shell",
)
_CONTAINER_VALUED = (
    "add-host annotation attach blkio-weight cap-add cap-drop cgroup-parent cgroupns cidfile cpu-period cpu-quota"
    " cpu-shares cpus cpuset-cpus cpuset-mems device dns dns-option dns-search domainname entrypoint env env-file"
    " expose gpus group-add hostname ip ipc isolation label label-file link log-driver log-opt mac-address memory"
    " memory-reservation memory-swap mount name net network network-alias oom-score-adj pid pids-limit platform"
    " publish pull restart runtime security-opt shm-size stop-signal stop-timeout storage-opt sysctl tmpfs ulimit user"
    " userns uts volume volume-driver volumes-from workdir"
)
_CONTAINER_LONG = (
    "detach init interactive no-healthcheck oom-kill-disable privileged publish-all quiet read-only rm tty"
)
_CONTAINER_RUN = _wrapper("ditPqT", "acehlmpuvw", _CONTAINER_LONG, _CONTAINER_VALUED, operands=1)
_CONTAINER_EXEC = _wrapper(
    "dit", "euw", "detach interactive privileged tty", "detach-keys env env-file user workdir", operands=1
)

_CONTAINER = {
    "container exec": _CONTAINER_EXEC,
    "container run": _CONTAINER_RUN,
    "exec": _CONTAINER_EXEC,
    "run": _CONTAINER_RUN,
}
_COMPOSE_EXEC = _wrapper("dT", "euw", "detach no-tty privileged", "env index user workdir", operands=1)
_COMPOSE_RUN = _wrapper(
    "diPqT",
    "elpuvw",
    "build detach interactive no-deps no-tty quiet-pull remove-orphans rm service-ports use-aliases",
    "cap-add cap-drop entrypoint env env-from-file label name publish pull user volume workdir",
    operands=1,
)
_PACKAGE_RUNNER = _wrapper(
    "qy",
    "cpw",
    "bun no no-install prefer-offline quiet silent yes",
    "call filter package workspace",
    script="-c --call",
)
_UVX = _wrapper(
    "nqv",
    "cip",
    "isolated no-cache no-config no-index no-progress offline quiet refresh reinstall upgrade verbose",
    "cache-dir config-file constraints env-file extra-index-url from index index-url overrides python with"
    " with-editable with-requirements",
)
_CONDA = _wrapper("v", "np", "live-stream no-capture-output", "cwd name prefix")
_MISE = _wrapper(
    "qvy", "Cc", "fresh-env quiet raw verbose yes", "cd command jobs", script="-c --command", traits="dashes"
)
_KUBECTL = _wrapper(
    "Aiqt",
    "cfn",
    "attach expose quiet rm stdin tty",
    "container context env filename image kubeconfig labels limits namespace overrides port restart server user",
    operands=1,
    traits="late dashes",
)
_LATER = _wrapper("Mblmv", "fqt", inert="-c -d -l -r -V", traits="shell")
_NESTED_IN_WORDS = _wrapper(traits="quoted")
_LOADER = _wrapper(
    "", "", "inhibit-cache list verify", "argv0 audit glibc-hwcaps-mask inhibit-rpath library-path preload"
)

_CALLS: Mapping[str, Wrapper] = {
    # The shell's own words.
    "builtin": _wrapper(),
    "command": _wrapper("pvV", inert="-v -V", plain=""),
    "exec": _wrapper("cl", "a"),
    "nocorrect": _wrapper(),
    "noglob": _wrapper(),
    "time": _wrapper(
        "apqvV", "fo", "append portability quiet verbose", "format output", traits="assignments", plain="-p"
    ),
    # Time, priority, processors, limits: the command stays what it is.
    "chrt": _wrapper(
        "abdfimoprRGvhV",
        "TPD",
        "all-tasks batch deadline fifo idle max other pid reset-on-fork rr verbose",
        "sched-runtime sched-period sched-deadline",
        maybe=r"[0-9]+",
        inert="-p --pid -m --max",
        plain="-b -f -i -o -r --batch --fifo --idle --other --rr",
    ),
    "ionice": _wrapper(
        "tVh",
        "cnpPu",
        "ignore",
        "class classdata pid pgid uid",
        inert="-p -P -u --pid --pgid --uid",
        plain="-c -n -t --class --classdata --ignore",
    ),
    "nice": _wrapper("0123456789", "n", "", "adjustment", plain="-n --adjustment"),
    "numactl": _wrapper(
        "abhHls",
        "CNPimpw",
        "all balancing hardware localalloc show",
        "cpunodebind interleave membind physcpubind preferred preferred-many weighted-interleave",
        plain="-C -N -i -l -m -p --cpunodebind --interleave --localalloc --membind --physcpubind --preferred",
    ),
    "prlimit": _wrapper(
        "hV", "op", "noheadings raw verbose", "output pid", optional="cdefilmnqrstuvxy", inert="-p --pid"
    ),
    "setsid": _wrapper("cfwhV", "", "ctty fork wait", plain="-w --wait"),
    "stdbuf": _wrapper("", "eio", "", "error input output", plain="-e -i -o --error --input --output"),
    "taskset": _wrapper(
        "acphV", "", "all-tasks cpu-list pid", operands=1, inert="-p --pid", plain="-a -c --all-tasks --cpu-list"
    ),
    "timeout": _wrapper(
        "fpv",
        "ks",
        "foreground preserve-status verbose",
        "kill-after signal",
        operands=1,
        plain="-f -k -p -s -v --foreground --kill-after --preserve-status --signal --verbose",
    ),
    "nohup": _wrapper(plain="", leaves="nohup.out"),
    # Environment.
    "env": _wrapper(
        "-0iv",
        "CPSau",
        "debug ignore-environment list-signal-handling null block-signal default-signal ignore-signal",
        "argv0 chdir split-string unset",
        traits="assignments",
        plain="- -i",
    ),
    "direnv exec": _wrapper(operands=1),
    "dotenv": _wrapper("", "efv", "override", traits="dashes"),
    "dotenv run": _wrapper("", "fe", "override no-override", "file env"),
    **dict.fromkeys(("catchsegv", "eatmydata", "torify", "torsocks"), _wrapper()),
    "cpulimit": _wrapper("bfmqvz", "Pelp", "background foreground lazy", "exe limit path pid"),
    "cross-env": _wrapper(traits="assignments"),
    "faketime": _wrapper("fm", "p", "exclude-monotonic", "", operands=1),
    **dict.fromkeys(("i386", "linux32", "linux64", "setarch", "uname26", "x86_64"), _SETARCH),
    # Other rights, other users.
    "doas": _wrapper("Lns", "Cau", traits="shell"),
    "fakeroot": _wrapper("huv", "bfils", "unknown-is-real", "faked fd-base lib load save", plain="", traits="shell"),
    "gosu": _wrapper(operands=1),
    "pkexec": _wrapper("", "", "disable-internal-agent keep-cwd", "user", traits="shell"),
    "runuser": _wrapper(
        "-Pflmp", "GTcgsuw", "fast login no-pty preserve-environment pty", "group supp-group user whitelist-environment"
    ),
    "setpriv": _wrapper(
        "dhV",
        "",
        "clear-groups dump init-groups keep-groups list-caps nnp no-new-privs reset-env",
        "ambient-caps apparmor-profile bounding-set egid euid groups inh-caps landlock-access landlock-rule pdeathsig"
        " ptracer regid reuid rgid ruid seccomp-filter securebits selinux-label",
    ),
    "sg": _wrapper("-", script="-c", operands=1, traits="late shell joined"),
    "su": SU,
    "su-exec": _wrapper(operands=1),
    "sudo": _wrapper(
        "ABbEeHiKklNnPSsVv",
        "CcDghpRrTtUu",
        "askpass background bell edit preserve-env set-home login remove-timestamp reset-timestamp list no-update"
        " non-interactive preserve-groups stdin shell validate",
        "user group host prompt chdir chroot role type command-timeout other-user close-from login-class",
        traits="assignments shell",
        inert="-K -k -l -v -V --list --validate --remove-timestamp --reset-timestamp",
    ),
    # Namespaces, roots, containers.
    "chroot": _wrapper("", "", "skip-chdir", "userspec groups", operands=1, traits="shell"),
    "dbus-run-session": _wrapper("", "", "", "config-file dbus-daemon", plain=""),
    **{f"{tool} {verb}": found for tool in ("docker", "nerdctl", "podman") for verb, found in _CONTAINER.items()},
    **{f"{tool} exec": _COMPOSE_EXEC for tool in ("docker compose", "docker-compose", "podman-compose")},
    **{f"{tool} run": _COMPOSE_RUN for tool in ("docker compose", "docker-compose", "podman-compose")},
    **dict.fromkeys(("kubectl exec", "kubectl run", "oc exec", "oc run"), _KUBECTL),
    "nsenter": _wrapper(
        "FZacehV",
        "GNSWt",
        "all cgroup ipc mount net pid user uts time env follow-context join-cgroup no-fork preserve-credentials root"
        " wd",
        "setgid setuid target wdns",
        optional="CTUimnpruw",
        traits="shell",
    ),
    "systemd-run": _wrapper(
        "GPSdhqrt",
        "EHMpu",
        "collect no-ask-password no-block pipe pty quiet remain-after-exit same-dir scope send-sighup shell"
        " slice-inherit system user wait",
        "description gid host machine nice on-active on-boot on-calendar on-startup on-unit-active on-unit-inactive"
        " path-property property service-type setenv slice socket-property timer-property uid unit working-directory",
        traits="shell",
    ),
    "proot": _wrapper("0Shv", "bkqrw", "kill-on-exit root-id", "bind cwd kernel-release mount qemu rootfs"),
    "unshare": _wrapper(
        "cfhrV",
        "GRSlw",
        "cgroup fork ipc keep-caps kill-child map-auto map-current-user map-root-user mount mount-proc net pid time"
        " user uts",
        "boottime map-group map-groups map-user map-users monotonic propagation root setgid setgroups setuid wd",
        optional="CTUimnpu",
        traits="shell",
    ),
    # Tracing and measuring.
    "gdb": _wrapper("nq", "", "args batch nh nx quiet"),
    "ltrace": _wrapper("CLSTVbcfhirt", "AaDeFlnopsuwx"),
    **dict.fromkeys(("ld.so", "ld-linux.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"), _LOADER),
    "perf record": _wrapper("Rabgqv", "CFcemopt", "", "call-graph cpu event freq output"),
    "perf stat": _wrapper("BSTadgiv", "CIeoprtx", "", "cpu event output repeat"),
    "ssh": SSH,
    "ssh-agent": _wrapper("DcdksTx", "EOPat"),
    "sshpass": _wrapper("ev", "Ppdf"),
    "strace": _wrapper(
        "CDFTVYZcdfhiknqrtvwxyz",
        "EIOPSUXabeopsu",
        "follow-forks output-separately summary summary-only relative-timestamps syscall-times decode-fds quiet"
        " successful-only failed-only",
        "attach env output status string-limit trace user",
        piped="-o --output",
        inert="-p --attach -V -h",
        plain="-C -T -c -f -i -q -r -t -v -x -y",
    ),
    "valgrind": _wrapper("dhqsv", plain="-q -s -v"),
    # Sessions, terminals, repetition.
    "at": _LATER,
    "batch": _LATER,
    "busybox": _wrapper("", "", "list list-full"),
    "chronic": _wrapper("ev"),
    "dumb-init": _wrapper("cv", "r", "single-child verbose", "rewrite"),
    "entr": _wrapper("acdnprxz"),
    "flock": _wrapper(
        "Fehnosuxv",
        "Ecw",
        "close exclusive no-fork nb nonblock shared unlock verbose",
        "command conflict-exit-code timeout wait",
        operands=1,
        script="-c --command",
        traits="late",
    ),
    "ifne": _wrapper("n"),
    "parallel": _wrapper(
        "0kmqrtuvxX",
        "CEILNPSadijlns",
        "bar color dry-run eta group keep-order lb line-buffer link no-notice null pipe plus progress quote resume"
        " resume-failed tag ungroup verbose will-cite",
        "arg-file arg-sep colsep delay delimiter halt joblog jobs load max-args max-lines max-procs max-replace-args"
        " memfree nice results retries sshlogin tagstring timeout tmpdir wd workdir",
        traits="joined",
    ),
    "rlwrap": _wrapper("ARacimnoruvw", "CDHOPSbfgltz"),
    "script": _wrapper(
        "aefqV",
        "BEIOTcmo",
        "append flush force quiet return",
        "command echo log-in log-io log-out log-timing logging-format output-limit",
        optional="t",
        operands=1,
        script="-c --command",
        traits="late shell",
    ),
    "tini": _wrapper("ghsvw", "pe"),
    **dict.fromkeys(("concurrently", "hyperfine", "nodemon", "screen", "tmux", "watchexec"), _NESTED_IN_WORDS),
    "toybox": _wrapper(),
    "unbuffer": _wrapper("p"),
    "watch": _wrapper(
        "bcCdeghrtvwx",
        "nqs",
        "beep chgexit color no-color differences errexit exec no-linenumbers no-rerun no-title no-wrap precise",
        "equexit interval shotsdir",
        traits="joined",
    ),
    "xargs": _wrapper(
        "0oprtx",
        "EIJLPRSadns",
        "exit eof interactive max-lines no-run-if-empty null open-tty replace show-limits verbose",
        "arg-file delimiter max-args max-chars max-procs process-slot-var",
        optional="eil",
    ),
    "xvfb-run": _wrapper(
        "ahl",
        "efnpsw",
        "auto-servernum listen-tcp",
        "auth-file error-file server-args server-num wait xauth-protocol",
        plain="-a --auto-servernum",
    ),
    # Environments of languages.
    **dict.fromkeys(("conda run", "mamba run", "micromamba run"), _CONDA),
    **dict.fromkeys(("mise exec", "mise x"), _MISE),
    **dict.fromkeys(("bundle exec", "asdf exec", "pyenv exec", "rbenv exec"), _wrapper()),
    **dict.fromkeys(
        ("npx", "pnpx", "bunx", "bun x", "npm exec", "npm x", "pnpm dlx", "pnpm exec", "yarn dlx", "yarn exec"),
        _PACKAGE_RUNNER,
    ),
    **dict.fromkeys(
        ("hatch run", "hatch env run", "pdm run", "pipenv run", "pixi run", "poetry run", "rye run"), _wrapper()
    ),
    **dict.fromkeys(("tox exec", "aws-vault exec", "doppler run", "op run"), _wrapper(traits="dashes")),
    **dict.fromkeys(("uvx", "uv tool run"), _UVX),
    "pipx run": _wrapper("qv", "", "no-cache quiet verbose", "index-url pip-args python spec"),
    "uv run": _wrapper(
        "nqv",
        "Pip",
        "active all-extras all-groups exact frozen isolated locked managed-python no-build no-cache no-config "
        " no-default-groups no-dev no-editable no-env-file no-index no-managed-python no-progress no-project no-sync"
        " offline only-dev quiet refresh reinstall upgrade verbose",
        "cache-dir config-file directory env-file extra group index-url no-extra no-group only-group package project"
        " python with with-editable with-requirements",
    ),
}

WRAPPERS: Mapping[str, Wrapper] = {
    call: msgspec.structs.replace(wrapper, verb=tuple(call.split()[1:])) for call, wrapper in _CALLS.items()
}
"""The wrappers by how each is called."""
