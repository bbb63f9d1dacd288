"""The root of a container that runs the machine's own programs and has users of its own: what it holds beside them.

`root.py` says what of the machine is shown in it. Everything else is made here, and belongs to the container, whose
root may change it.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ferrule.sandbox.linux.root import TOP

FOLDERS: Mapping[str, int] = {
    "etc/pam.d": 0o755, "etc/skel": 0o755, "home": 0o755, "mnt": 0o755, "opt": 0o755, "root": 0o700, "run": 0o755,
    "srv": 0o755, "var/cache": 0o755, "var/lib": 0o755, "var/log": 0o755, "var/mail": 0o1777, "var/spool": 0o755,
    "var/tmp": 0o1777,
}  # fmt: skip
LINKS: Mapping[str, str] = {
    "etc/mtab": "/proc/self/mounts",
    "etc/os-release": "../usr/lib/os-release",
    "var/run": "/run",
}
FILES: Mapping[str, str] = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\ntty:x:5:\nmail:x:8:\nusers:x:100:\nnogroup:x:65534:\n",
    "etc/shells": "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n",
    "etc/nsswitch.conf": (
        "passwd: files\ngroup: files\nshadow: files\nhosts: files\nprotocols: files\nservices: files\n"
    ),
    "etc/login.defs": "UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nUMASK 022\nUSERGROUPS_ENAB yes\n",
    "etc/pam.d/other": (
        "auth sufficient pam_rootok.so\nauth required pam_deny.so\naccount required pam_permit.so\n"
        "session required pam_permit.so\npassword required pam_deny.so\n"
    ),
}
SECRETS: Mapping[str, str] = {
    "etc/shadow": "root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n",
    "etc/gshadow": "root:*::\ntty:*::\nmail:*::\nusers:*::\nnogroup:*::\n",
}
"""What only root may read."""


USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
USER_ROWS: Mapping[str, str] = {
    "etc/passwd": "{0}:x:1000:1000::/home/{0}:/bin/bash\n",
    "etc/group": "{0}:x:1000:\n",
    "etc/shadow": "{0}:*:19000:0:99999:7:::\n",
    "etc/gshadow": "{0}:*::\n",
}


def make_root(root: Path, user: str) -> None:
    """Make a folder with it; `user` has to be one of its users, and is made if it is a new name. Raises `OSError`."""
    is_new = USER_NAME.fullmatch(user) and f"\n{user}:" not in "\n" + FILES["etc/passwd"]
    rows = {name: row.format(user) for name, row in USER_ROWS.items()} if is_new else {}
    root.mkdir(mode=0o755)
    for name, mode in FOLDERS.items():
        (root / name).mkdir(parents=True)
        (root / name).chmod(mode)
    tops = {name: os.readlink(f"/{name}") for name in TOP if os.path.islink(f"/{name}")}
    for name, target in {**LINKS, **tops}.items():
        (root / name).symlink_to(target)
    for files, mode in ((FILES, 0o644), (SECRETS, 0o600)):
        for name, text in files.items():
            (root / name).write_text(text + rows.get(name, ""), encoding="ascii")
            (root / name).chmod(mode)
