"""The connection to a model server: one client, created lazily; every failure is one sentence."""

import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ferrule._version import __version__
from ferrule.model.refusals import LONGEST_QUOTE, ServerError, as_model_error, read_error
from ferrule.model.retry import LONGEST_STATED_MS
from ferrule.model.sse import SseDecoder
from ferrule.model.stream import ModelError
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.redaction import (
    HIDDEN,
    any_of,
    hidden,
    hide_in_logs,
    secrets_in_headers,
    secrets_in_url,
    without_secrets,
)

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 15.0
"""A server that does not accept the connection by then is unreachable."""
WRITE_TIMEOUT_S = 120.0
"""Longest stall while sending a request; histories with images are megabytes on a slow line."""
KEEP_ALIVE_S = 120.0
"""Lifetime of an idle connection: longer than most tools run between two requests."""
IDLE_CONNECTIONS = 16
"""Idle connections kept. Open ones are not limited: each sub-agent needs its own."""
MAX_ERROR_BYTES = 64 * 2**10
"""Bytes of an error's body to search for a sentence."""
MAX_BODY_BYTES = 64 * 2**20
"""Bytes of a reply that is not a stream."""


MAX_LOOKED_BYTES = 2**20
"""Bytes of what a server says about itself; a chat template has some ten thousand."""


class Looked(msgspec.Struct, frozen=True):
    """An answer to a question about the server: its status (0: none came), and its JSON if it is any."""

    status: int = 0
    value: object = None


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A server's address. `headers` is called for each request, so that a changed key takes effect; `fixed` are those
    that its API wants. `name` is for people, `provider` is the user's name for it."""

    name: str
    provider: str = ""
    base_url: str
    params: dict[str, str]
    headers: Callable[[], dict[str, str]]
    fixed: dict[str, str] = {}
    idle_timeout_ms: int
    longest_wait_ms: int = LONGEST_STATED_MS


def split_base_url(url: str) -> tuple[str, dict[str, str]]:
    """Split a base URL into the base of all paths and its query parameters. Raises `UsageError` for an invalid URL."""
    try:
        parts = urlsplit(url.strip())
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        port_is_valid = False
    if not port_is_valid or parts.scheme not in ("http", "https") or not parts.hostname:
        said = hidden(url.rpartition("@")[2].partition("?")[0], secrets_in_url(url))
        raise UsageError(f"The base URL {said!r} is not usable: write it like http://localhost:11434/v1.")
    path = parts.path.rstrip("/")
    for route in ("/chat/completions", "/responses", "/messages", "/models"):
        path = path.removesuffix(route)
    return f"{parts.scheme}://{parts.netloc}{path}", dict(parse_qsl(parts.query))


class RequestGate(Protocol):
    """Decides when requests go to a server, for programs that send many."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for a request's turn; it ends when the answer was read."""
        ...

    async def again(self, refused: ModelError, tries: int) -> bool:
        """Wait as long as a server asks that refused a request, sent so many times; return whether to send it again."""
        ...


class Server:
    """A model server. Creating it opens no connection; `aclose` closes any. All requests go through the `gate`."""

    def __init__(self, endpoint: Endpoint, gate: RequestGate | None = None) -> None:
        self.endpoint = endpoint
        self._gate = gate
        self._client: httpx2.AsyncClient | None = None
        self._proxied = False
        self._urls: dict[str, httpx2.URL] = {}

    def secrets(self) -> list[str]:
        """Return the keys that are sent to it."""
        endpoint = self.endpoint
        with suppress(UsageError):  # there is no key
            return [*endpoint.params.values(), *secrets_in_url(endpoint.base_url),
                    *secrets_in_headers(endpoint.headers().values())]  # fmt: skip
        return []

    def hide(self, error: ModelError) -> ModelError:
        """Take the server's keys out of an error, which can quote the server, which can quote us."""
        pattern = any_of(self.secrets())
        if pattern is not None:
            error.args = tuple(pattern.sub(HIDDEN, arg) if isinstance(arg, str) else arg for arg in error.args)
            error.said = pattern.sub(HIDDEN, error.said)
        return error

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def events(
        self, path: str, body: bytes, on_sent: Callable[[], None] | None = None, more: Mapping[str, str] = {}
    ) -> AsyncGenerator[list[bytes], None]:
        """Post `body` and yield the payloads of the answer's events, batched as they arrive.

        An answer that is one JSON body is one payload. `[DONE]` is a payload like the others. `on_sent` is called once
        the body has been sent. `more` are further headers. Raises `ModelError`.
        """
        headers = {"content-type": "application/json", "accept": "text/event-stream", **more}
        async with self._send("POST", path, headers, body, on_sent) as response:
            decoder = SseDecoder()
            is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
            packed = "content-encoding" in response.headers
            chunks = response.aiter_bytes() if packed else response.aiter_raw()
            async for chunk in chunks:
                if not is_stream:
                    if chunk.lstrip()[:1] in (b"{", b"[", b"<", b""):
                        yield [await self._whole(chunks, chunk)]
                        return
                    is_stream = True
                if payloads := decoder.feed(chunk):
                    yield payloads
            if payloads := decoder.flush():
                yield payloads

    async def get_json(self, path: str) -> object:
        """Return the decoded body of a GET. Raises `ModelError`."""
        return await self._json("GET", path, {"accept": "application/json"})

    async def post_json(self, path: str, body: bytes) -> object:
        """Post a JSON body and return the decoded answer, which is no stream. Raises `ModelError`."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        return await self._json("POST", path, headers, body)

    async def _json(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> object:
        async with self._send(method, path, headers, body) as response:
            body = await self._whole(response.aiter_bytes(), b"")
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise self.malformed(body) from error

    async def look_up(self, path: str, question: bytes | None = None, *, below_root: bool = True) -> "Looked":
        """Ask the server about itself, with its own key, at a path beside the API (`below_root`) or of it.

        Never raises: an answer that is none, too long, packed or from elsewhere is as good as no answer.
        """
        import httpx2

        endpoint = self.endpoint
        base = endpoint.base_url.removesuffix("/v1") if below_root else endpoint.base_url
        try:
            async with (
                self._turn(),
                self._connection().stream(
                    "GET" if question is None else "POST",
                    f"{base}{path}",
                    params=endpoint.params or None,
                    headers={**_LOOKS_UP, **endpoint.fixed, **endpoint.headers()},
                    content=question,
                ) as response,
            ):
                if response.status_code != 200 or "content-encoding" in response.headers:
                    return Looked(response.status_code)
                body = bytearray()
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > MAX_LOOKED_BYTES:
                        return Looked(response.status_code)
                return Looked(response.status_code, msgspec.json.decode(body))
        except (httpx2.HTTPError, httpx2.InvalidURL, FerruleError, ValueError, RecursionError):
            return Looked()

    async def _whole(self, chunks: AsyncIterator[bytes], begun: bytes) -> bytes:
        """Read the rest of a body that is not a stream, after its first bytes."""
        body = bytearray(begun)
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise ModelError(f"{self.endpoint.name} answered with more than {MAX_BODY_BYTES // 2**20} MiB at once.")
        if not body.lstrip().startswith((b"{", b"[")):
            raise self.malformed(bytes(body))
        return bytes(body)

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> AsyncIterator["httpx2.Response"]:
        import httpx2

        endpoint, tries = self.endpoint, 0
        try:
            while True:
                tries += 1
                async with (
                    self._turn(),
                    self._connection().stream(
                        method,
                        self._url(path),
                        headers=_joined({**headers, **endpoint.fixed}, endpoint.headers()),
                        content=body,
                        extensions={} if on_sent is None else {"trace": _when_sent(on_sent)},
                    ) as response,
                ):
                    if response.status_code == 200:
                        yield response
                        return
                    refusal = self.hide(await self._refusal(response))
                if self._gate is None or not await self._gate.again(refusal, tries):
                    raise refusal
        except httpx2.TransportError as error:
            raise self._broken(error) from error
        except (httpx2.DecodingError, httpx2.InvalidURL) as error:
            raise ModelError(f"The exchange with {self._where} failed: {error}") from error

    def _turn(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._gate is None else self._gate.turn()

    def _url(self, path: str) -> "httpx2.URL":
        """Return the whole address of a path. Taking one apart takes a tenth of a short request's time: it is kept."""
        import httpx2

        if path not in self._urls:
            endpoint = self.endpoint
            self._urls[path] = httpx2.URL(f"{endpoint.base_url}{path}", params=endpoint.params or None)
        return self._urls[path]

    def _connection(self) -> "httpx2.AsyncClient":
        if self._client is None:
            hide_in_logs(self)
            self._client = self._connect()
        return self._client

    def _connect(self) -> "httpx2.AsyncClient":
        import httpx2

        from ferrule.model.transport import DirectClient, MergingTransport

        parts = urlsplit(self.endpoint.base_url)
        idle_s = self.endpoint.idle_timeout_ms / 1000
        timeout = httpx2.Timeout(idle_s, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S, pool=None)
        headers = {"user-agent": f"ferrule/{__version__}"}
        # Reading the trust store costs 50 ms, so http:// gets a context that trusts nobody.
        is_tls = parts.scheme == "https"
        trust_env = not _is_loopback(parts.hostname or "")
        context = httpx2.create_ssl_context(trust_env=trust_env) if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._proxied = trust_env and _names_a_proxy()
        if not self._proxied and parts.username is None:
            transport = MergingTransport(context, idle=IDLE_CONNECTIONS, idle_s=KEEP_ALIVE_S)
            return DirectClient(transport, timeout=timeout, headers=headers)
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=IDLE_CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S
        )
        try:
            return httpx2.AsyncClient(
                verify=context, trust_env=trust_env, timeout=timeout, limits=limits, headers=headers
            )
        except (ValueError, ImportError) as error:  # a scheme that is none, or one that needs a package
            raise ModelError(f"The proxy that the environment names cannot be used: {_reason(error)}.") from error

    @property
    def _where(self) -> str:
        return f"{self.endpoint.name} at {without_secrets(self.endpoint.base_url)}"

    async def _refusal(self, response: "httpx2.Response") -> ModelError:
        """Build the error for an answer other than 200."""
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ERROR_BYTES:
                break
        status = response.status_code
        try:
            error = read_error(msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError):
            error = None
        if 300 <= status < 400:
            target = response.headers.get("location", "another address")
            return ModelError(
                f"{self._where} redirects to {target}: put that address into the base URL.", status=status
            )
        known = error or ServerError(_plain(bytes(body)))
        no_key = status == 401 and not any(name in response.request.headers for name in _KEY_HEADERS)
        hint = _NO_KEY if no_key else _HINTS.get(status)
        if hint and not (status == 404 and error and "model" in error.message.lower()):
            said = f" It said: {known.message[:LONGEST_QUOTE]}" if known.message else ""
            text = hint.format(server=self._where) + said
            return ModelError(text, status=status).quoting(known.message, known.code, known.param)
        if status == 404:
            said = known.message[:LONGEST_QUOTE]
            text = f"{self._where} does not have this model: {said} (choose another with -m)"
            return ModelError(text, status=status).quoting(known.message, known.code, known.param)
        return as_model_error(known, self.endpoint.name, status=status, headers=response.headers)

    def _broken(self, error: "httpx2.TransportError") -> ModelError:
        """Build the error for a failed connection. All of these may be temporary, so all are retryable."""
        import httpx2

        if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
            through = ", and the proxy that the environment names" if self._proxied else ""
            text = (
                f"Cannot connect to {self._where} ({_reason(error)}): is the server running{through}, "
                "and is the base URL right?"
            )
        elif isinstance(error, httpx2.ReadTimeout):
            seconds = self.endpoint.idle_timeout_ms / 1000
            text = f"{self._where} sent nothing for {seconds:g} s (stream_idle_timeout_ms)."
        elif isinstance(error, httpx2.ProxyError | httpx2.UnsupportedProtocol):
            return ModelError(f"Cannot reach {self._where} through the proxy: {_reason(error)}.")
        else:
            text = f"The connection to {self._where} broke off: {_reason(error)}."
        certificate = "CERTIFICATE" in text
        return ModelError(text, retryable=not certificate)

    def malformed(self, body: bytes) -> ModelError:
        """Build the error for an answer that does not match this API."""
        error = ModelError(
            f"{self._where} answered with something that is not its API ({_plain(body)[:80]!r}): "
            "does the base URL end as the server's manual says (often /v1)?"
        )
        return self.hide(error)


_LOOKS_UP = {"accept": "application/json", "accept-encoding": "identity"}
_LISTS = frozenset({"anthropic-beta"})
"""Headers that list things: the user's stand beside ours."""


def _joined(ours: Mapping[str, str], users: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request; the user's come first, in whatever case."""
    own = {name.lower() for name in users}
    headers = {**{name: value for name, value in ours.items() if name.lower() not in own}, **users}
    for name, value in users.items():
        if name.lower() in _LISTS and name.lower() in ours:
            headers.pop(name)
            entries = [entry.strip() for entry in f"{value},{ours[name.lower()]}".split(",")]
            headers[name.lower()] = ",".join(dict.fromkeys(filter(None, entries)))
    return headers


_KEY_HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
_NO_KEY = (
    "{server} wants a key, and none was sent: put base_url and env_key (the variable that holds the key) under "
    "[model_providers.NAME] in config.toml, and choose it by -c model_provider=NAME."
)
_HINTS = {
    401: "{server} refuses the key: check the variable that holds it.",
    403: "{server} does not allow this request with this key.",
    404: "{server} does not know this path: does the base URL end as the server's manual says (often /v1), "
    "and does it speak this wire (--wire responses, chat or messages)?",
    405: "{server} does not know this path: does the base URL end as the server's manual says (often /v1), "
    "and does it speak this wire (--wire responses, chat or messages)?",
}


def _when_sent(on_sent: Callable[[], None]) -> Callable[[str, object], Awaitable[None]]:
    """Create a trace hook of the HTTP library that reports when the body has been written."""

    async def trace(event: str, info: object) -> None:
        if event.endswith("send_request_body.complete"):
            on_sent()

    return trace


_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")


def _reason(error: Exception) -> str:
    return _ERROR_NUMBER.sub("", str(error)).rstrip(".") or type(error).__name__


def _names_a_proxy() -> bool:
    from urllib.request import getproxies

    proxies = getproxies()
    return any(proxies.get(scheme) for scheme in ("http", "https", "all"))


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


_MARKUP = re.compile(rb"<[^>]*>|\s+")


def _plain(body: bytes) -> str:
    """Return the text of a body that may be HTML."""
    return " ".join(_MARKUP.sub(b" ", body[:MAX_ERROR_BYTES]).decode(errors="replace").split())[:LONGEST_QUOTE]
