"""Find a Chromium, and say how it is started: the browser itself, since the scripts that distributions put before it
read files that a container does not have."""

import os
import re
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path

import msgspec

from ferrule.containers.screen.errors import ScreenError
from ferrule.lookup import NOWHERE, Places, is_exposed, locate
from ferrule.sandbox.linux.root import DATA, HOME, Bind

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
KNOWN = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib64/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
    "/opt/chromium.org/chromium/chrome",
    "~/.cache/ms-playwright/chromium-*/chrome-linux*/chrome",
    "~/.cache/puppeteer/chrome/*/chrome-linux*/chrome",
)
"""Where distributions, Google and test tools put it."""
HOW_TO_GET = 'install one (Debian: `apt install chromium`) or name one in config.toml: [computer] browser = "/path"'
ELF = b"\x7fELF"
SNAP = "snap"
"""What a name of snapd's leads to: it starts the browser in a confinement of its own, which a container refuses."""
SCRIPT_BYTES = 64 * 1024
_PATH_IN_SCRIPT = re.compile(r"/[\w./+-]*chrom[\w./+-]*")
PLACE = "/opt/browser"
"""Where a browser that lies outside `/usr` is shown in the container."""
PROFILE = f"{HOME}/profile"
CACHE_BYTES = 64 << 20
QUIET = (
    "AcceptCHFrame", "AutofillServerCommunication", "CertificateTransparencyComponentUpdater",
    "DialMediaRouteProvider", "EncryptedClientHello", "GlobalMediaControls", "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OmniboxPopup",
    "OptimizationGuideModelDownloading", "OptimizationHints", "PaintHolding", "Translate", "WebUIOmniboxAimPopup",
    "WebUIOmniboxPopup",
)  # fmt: skip
"""Features that ask servers of the browser's maker, turn http into https by themselves, show what nobody sees, or hide
whom a connection is for."""
FLAGS: Sequence[str] = (
    "--headless", "--no-sandbox", "--remote-debugging-pipe", f"--user-data-dir={PROFILE}",
    f"--disk-cache-size={CACHE_BYTES}", "--disable-dev-shm-usage", "--disable-gpu", "--disable-software-rasterizer",
    "--disable-quic", "--disable-smooth-scrolling", "--disable-background-networking", "--disable-component-update",
    "--disable-component-extensions-with-background-pages", "--disable-extensions", "--disable-sync",
    "--disable-default-apps", "--disable-domain-reliability", "--disable-client-side-phishing-detection",
    "--disable-field-trial-config", "--disable-breakpad", "--disable-crash-reporter",
    "--disable-search-engine-choice-screen", "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding", "--disable-background-timer-throttling", "--disable-hang-monitor",
    "--allow-pre-commit-input", "--no-first-run", "--no-default-browser-check", "--no-pings", "--no-service-autorun",
    "--no-zygote", "--password-store=basic", "--use-mock-keychain", "--mute-audio", "--metrics-recording-only",
    "--hide-scrollbars", "--force-color-profile=srgb", f"--disable-features={','.join(QUIET)}",
)  # fmt: skip
"""`--no-sandbox`: the container is the boundary, in which further namespaces are refused."""


class Program(msgspec.Struct, frozen=True):
    """A browser: its file on this machine, and how it is started in a container, which shows `binds`."""

    path: str
    argv: tuple[str, ...]
    binds: tuple[Bind, ...] = ()


def find_program(configured: str | None = None, places: Places = NOWHERE) -> Program:
    """Return the browser to use: the one that was named, or the first found, but none that commands can write. Raises
    `ScreenError`."""
    if configured is not None:
        path = os.path.expanduser(configured)
        found = _seen_through(path) if os.access(path, os.X_OK) else None
        if found is None:
            raise ScreenError(f"the browser {configured} of the configuration is no Chromium that can be run")
        return _program(found)
    for path in _candidates(places):
        if (found := _seen_through(path)) is not None and not is_exposed(found, places):
            return _program(found)
    raise ScreenError(f"no Chromium was found on this machine: {HOW_TO_GET}")


def _candidates(places: Places) -> Iterator[str]:
    for pattern in KNOWN:
        yield from sorted(glob(os.path.expanduser(pattern)), reverse=True)
    for name in NAMES:
        if (path := locate(name, os.environ.get("PATH"), places).path) is not None:
            yield path


def _seen_through(path: str) -> str | None:
    """Return the program that a path leads to, through a script that starts it; None if there is none."""
    real = os.path.realpath(path)
    if not os.access(real, os.X_OK) or not os.path.isfile(real) or os.path.basename(real) == SNAP:
        return None
    with Path(real).open("rb") as file:
        head = file.read(SCRIPT_BYTES)
    if head.startswith(ELF):
        return real
    named = _PATH_IN_SCRIPT.findall(head.decode(errors="replace")) if head.startswith(b"#!") else []
    return next((os.path.realpath(name) for name in named if _is_program(name)), None)


def _is_program(path: str) -> bool:
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        return False
    with Path(path).open("rb") as file:
        return file.read(len(ELF)) == ELF


def _program(path: str) -> Program:
    if path.startswith("/usr/"):
        return Program(path, (path, *FLAGS))
    folder, name = os.path.split(path)
    return Program(path, (f"{PLACE}/{name}", *FLAGS), (Bind(folder, PLACE),))


DOWNLOADS = DATA
"""Where downloads go, in the container."""
