"""Logins at remote servers, kept in our own files, renewed before they expire, shared by all sessions.

A file per address, readable by the user alone. Whoever renews holds the file's lock: refresh tokens may be used only
once, and the next one must be on disk before anybody needs it.
"""

import hashlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import httpx2
import msgspec

from ferrule.locks import take_in_time, try_lock

FOLDER = "mcp_logins"
EARLY_SECONDS = 30.0
"""Seconds before its end that a token is renewed, so that it does not expire in transit."""
LOCK_SECONDS = 15.0
"""Seconds to wait for another process that renews; then we go on without the lock."""


class Login(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a login: tokens, and how to renew them. `expires_at` is in seconds since 1970; 0 means unknown."""

    access_token: str
    token_endpoint: str
    client_id: str
    refresh_token: str | None = None
    expires_at: float = 0.0
    client_secret: str | None = None
    auth_method: str | None = None
    resource: str | None = None
    scope: str | None = None
    wanted: str | None = None
    """Scopes that a server has asked for since, or did not grant: the next login asks for them."""

    def expires_soon(self, now: float) -> bool:
        """Return whether it is time to renew it."""
        return self.expires_at != 0 and now >= self.expires_at - EARLY_SECONDS

    def __repr__(self) -> str:
        return f"Login(token_endpoint={self.token_endpoint!r}, client_id={self.client_id!r}, ...)"


class LoginStore:
    """Stores the login at one address."""

    def __init__(self, home: str, url: str) -> None:
        self.path = Path(home, FOLDER, f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json")

    def read(self) -> Login | None:
        """Return the stored login, if any."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Login)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def write(self, login: Login) -> None:
        """Store it whole or not at all, readable by the user alone."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(login))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)

    def remove(self) -> bool:
        """Forget the login; return False if there is none."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    async def current(self) -> Login | None:
        """Return the login to use now, renewed if it expires soon."""
        login = self.read()
        if login is not None and login.expires_soon(time.time()):
            return await self.renewed(login)
        return login

    async def renewed(self, used: Login) -> Login:
        """Return a login that replaces a refused or expiring one; the same one if there is no better."""
        async with self._locked():
            stored = self.read()
            if stored is not None and stored.access_token != used.access_token:
                return stored  # somebody else renewed it, or logged in again
            fresh = await _refreshed(used)
            if fresh is None:
                return self.read() or used
            self.write(fresh)
            return fresh

    async def want(self, scope: str) -> None:
        """Remember scopes that the login lacks."""
        async with self._locked():
            login = self.read()
            if login is None:
                return
            known = [*(login.scope or "").split(), *(login.wanted or "").split()]
            new = [word for word in dict.fromkeys(scope.split()) if word not in known]
            if new:
                self.write(msgspec.structs.replace(login, wanted=" ".join([*(login.wanted or "").split(), *new])))

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            await take_in_time(partial(try_lock, descriptor), LOCK_SECONDS)
            yield
        finally:
            os.close(descriptor)


class LoginAuth(httpx2.Auth):
    """Adds the stored login to requests; after a 401 it tries once more with a renewed one."""

    def __init__(self, store: LoginStore) -> None:
        self._store = store

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        login = await self._store.current()
        if login is None:
            yield request
            return
        request.headers["Authorization"] = f"Bearer {login.access_token}"
        response = yield request
        if response.status_code == 401:
            fresh = await self._store.renewed(login)
            if fresh.access_token != login.access_token:
                request.headers["Authorization"] = f"Bearer {fresh.access_token}"
                yield request


async def _refreshed(login: Login) -> Login | None:
    """Return the login obtained with the refresh token; None if the server gives none."""
    if login.refresh_token is None:
        return None
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "client_id": login.client_id}
    form |= {"resource": login.resource} if login.resource else {}
    basic: tuple[str, str] | None = None
    if login.client_secret and login.auth_method == "client_secret_basic":
        basic = (quote(login.client_id, safe=""), quote(login.client_secret, safe=""))
    elif login.client_secret:
        form["client_secret"] = login.client_secret
    try:
        async with httpx2.AsyncClient() as client:
            response = await client.post(login.token_endpoint, data=form, auth=basic or httpx2.USE_CLIENT_DEFAULT)
        given = response.json() if response.status_code == 200 else None
    except (httpx2.HTTPError, ValueError):
        return None
    if not isinstance(given, dict) or not isinstance(given.get("access_token"), str):
        return None
    lifetime = given.get("expires_in")
    return msgspec.structs.replace(
        login,
        access_token=given["access_token"],
        refresh_token=given.get("refresh_token") or login.refresh_token,
        expires_at=time.time() + lifetime if isinstance(lifetime, int | float) else 0.0,
        scope=given.get("scope") or login.scope,
    )
