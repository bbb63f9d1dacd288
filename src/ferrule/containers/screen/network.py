"""What a screen reaches: the same as the commands of its session, by the same way out as all containers."""

import json
import re
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from ferrule.egress.addresses import is_address, spellings
from ferrule.egress.egress import PROXY, Egress
from ferrule.egress.guard import Guard, Resolve, system_addresses
from ferrule.egress.names import BadDomain, DomainNames, read_host
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import (
    DangerFullAccess,
    InContainer,
    NetworkAccess,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)
from ferrule.sandbox.linux.root import HOST_NAME
from ferrule.sandbox.way_out import Listeners

MAKERS_OWN = ("update.googleapis.com", "redirector.gvt1.com", "connectivitycheck.gstatic.com")
"""The browser asks there for parts of itself, for dictionaries, and for a network, whatever it is told: that is not let
out, and not worth a notice."""
FLAGS: Sequence[str] = (f"--proxy-server={PROXY}", f"--proxy-bypass-list={';'.join(('<-loopback>', *MAKERS_OWN))}")
"""Everything goes to the proxy, loopback, too: nothing else leads out, and the guard is asked about each name."""

POLICY_FOLDERS = ("/etc/chromium", "/etc/opt/chrome", "/etc/opt/chrome_for_testing")
"""Where Chromium, Chrome and Chrome for Testing look for an administrator's rules."""
POLICIES: Mapping[str, object] = {
    "AutofillAddressEnabled": False, "AutofillCreditCardEnabled": False, "BrowserNetworkTimeQueriesEnabled": False,
    "BrowserSignin": 0, "ComponentUpdatesEnabled": False, "DefaultGeolocationSetting": 2,
    "DefaultNotificationsSetting": 2, "EncryptedClientHelloEnabled": False, "NetworkPredictionOptions": 2,
    "PasswordManagerEnabled": False, "PrintingEnabled": False, "PromptForDownloadLocation": False,
    "SSLErrorOverrideAllowed": False, "SafeBrowsingProtectionLevel": 0, "SearchSuggestEnabled": False,
    "SpellcheckEnabled": False, "TranslateEnabled": False,
    "URLBlocklist": ["*"],
    "URLAllowlist": ["http://*", "https://*", "about:*", "blob:*", "data:*", "javascript:*", "chrome-extension://*"],
}  # fmt: skip
"""No windows that no picture shows, no pages that nobody has opened, nothing that asks servers of the browser's maker,
no files of the container, no other programs, no certificate that is wrong, and no connection that hides whom it is for,
which no way out lets through."""
Forbids = Callable[[str, int], str | None]
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class ScreenWay:
    """A way out that also shows a browser its rules; the roots of a `ca_file` are among them, as it reads no file."""

    def __init__(self, egress: Egress, ca_file: str | None) -> None:
        """Raises `UsageError` for a `ca_file` that cannot be read."""
        self.egress = egress
        self._policies = {**POLICIES, "CACertificates": [*_certificates(ca_file)]} if ca_file else POLICIES

    @property
    def files(self) -> Sequence[tuple[str, bytes]]:
        """See `WayOut.files`."""
        rules = json.dumps(self._policies).encode()
        return [*self.egress.files, *((f"{folder}/policies/managed/rules.json", rules) for folder in POLICY_FOLDERS)]

    @property
    def environment(self) -> Mapping[str, str]:
        """See `WayOut.environment`."""
        return self.egress.environment

    def serve(self, listeners: Listeners) -> None:
        """See `WayOut.serve`."""
        self.egress.serve(listeners)

    def stop(self, listeners: Listeners) -> None:
        """See `WayOut.stop`."""
        self.egress.stop(listeners)


def _certificates(ca_file: str) -> Sequence[str]:
    """Return the certificates of a file in base64. Raises `UsageError`."""
    try:
        text = Path(ca_file).read_text("ascii", "replace")
        return [b64encode(ssl.PEM_cert_to_DER_cert(one)).decode() for one in _CERTIFICATE.findall(text)]
    except (OSError, ValueError) as error:
        raise UsageError(f"the certificates of {ca_file} cannot be read: {error}") from error


class _Guard(Guard):
    """Also refuses what the user's rules forbid."""

    def __init__(
        self,
        allowed: DomainNames | None,
        hosts: Mapping[str, str],
        forbids: Forbids | None,
        resolve: Resolve | None = None,
    ) -> None:
        super().__init__(allowed, hosts=hosts, resolve=resolve)
        self._forbids = forbids

    def check(self, host: str, port: int) -> str:
        """See `Guard.check`."""
        name = super().check(host, port)
        if self._forbids is not None and (why := self._forbids(name, port)) is not None:
            raise self.refused(name, port, why)
        return name


class _OpenGuard(_Guard):
    """Lets all be reached that this machine reaches, itself included, except for what the user's rules forbid."""

    def __init__(self, allowed: DomainNames | None, hosts: Mapping[str, str], forbids: Forbids | None) -> None:
        super().__init__(allowed, hosts, forbids, _addresses)

    def check(self, host: str, port: int) -> str:
        """See `Guard.check`."""
        try:
            name = read_host(host)
        except BadDomain:  # an address, or a name that only this machine knows
            name = host.lower()
        self._heed(name, port)
        return name

    def check_addresses(self, name: str, port: int, found: Sequence[str]) -> None:
        """Any address will do that no rule names: a page can choose the name that leads there. See
        `Guard.check_addresses`."""
        for address in found:
            for spelling in spellings(address):
                self._heed(spelling, port)

    def _heed(self, name: str, port: int) -> None:
        if self._forbids is not None and (why := self._forbids(name, port)) is not None:
            raise self.refused(name, port, why)


async def _addresses(name: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, or of an address itself. Raises `OSError`."""
    return [name] if is_address(name) else await system_addresses(name, port)


class ScreenNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """The names that are reached: True for every public one, on ports 80 and 443. `hosts` sends `"name:port"` to
    exactly one `"address:port"`, which may be private; the name has to be allowed, too. `open`: everything that this
    machine reaches, whatever its name, address and port."""

    access: NetworkAccess = False
    open: bool = False
    hosts: Mapping[str, str] = {}
    ca_file: str | None = None
    forbids: Forbids | None = None
    """Says why a name is not reached though it is among them, or None."""

    @classmethod
    def of(cls, policy: SandboxPolicy, forbids: Forbids | None = None) -> Self:
        """Return what a session with this policy reaches. Where its commands have this machine's own network, the
        browser does, too."""
        if isinstance(policy, ReadOnly | WorkspaceWrite):
            return cls(
                access=policy.network_access,
                open=policy.network_access is True and not isinstance(policy, InContainer),
                hosts=policy.hosts,
                ca_file=policy.ca_file,
                forbids=forbids,
            )
        access = isinstance(policy, DangerFullAccess) or policy.network_access == "enabled"
        return cls(access=access, open=access, forbids=forbids)

    def guard(self) -> Guard:
        """Return who decides. Raises `UsageError` for a table that is wrong."""
        try:
            if isinstance(self.access, bool):
                allowed = None if self.access else DomainNames(())
            else:
                allowed = DomainNames.listed(self.access)
            return (_OpenGuard if self.open else _Guard)(allowed, self.hosts, self.forbids)
        except BadDomain as error:
            raise UsageError(f"network_access: {error}") from error

    def way_out(self) -> ScreenWay:
        """Open the way out. Raises `UsageError` for a table that is wrong."""
        return ScreenWay(Egress(self.guard(), ca_file=self.ca_file, host_name=HOST_NAME), self.ca_file)
