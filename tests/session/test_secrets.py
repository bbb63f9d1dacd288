"""No secret that a session is given comes out of it: not in logs, events, errors, session files or what models read."""

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule.dispatch.front_end import Callbacks
from ferrule.model.provider import list_models, open_model
from ferrule.model.stream import ModelError
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.session.opening import open_session
from ferrule.testing import ScriptedModel, raw
from tests.mcp.web import stub

MARK = "s3cr3t"
"""In every secret, so that half a one is found, too."""


def secret(name: str) -> str:
    return f"{MARK}-{name}-0123456789"


SECRETS = {"MY_KEY": secret("key"), "MY_HEADER": secret("header-variable"), "MY_BEARER": secret("bearer")}
ECHO = b'{"error": {"message": "Incorrect API key provided: %s", "code": "invalid_api_key"}}'
FAILURES = {
    "refused": raw(ECHO % SECRETS["MY_KEY"].encode(), status=401),
    "forbidden": raw(ECHO % SECRETS["MY_KEY"].encode(), status=403),
    "broken": raw(ECHO % SECRETS["MY_HEADER"].encode(), status=500),
    "odd": raw(b"<html>" + SECRETS["MY_KEY"].encode(), status=200, content_type="text/html"),
    "moved": raw(b"", status=302, headers={"location": f"http://127.0.0.1:1/?key={secret('query')}"}),
    "in the stream": raw(b'data: {"error": {"message": "no: %s"}}\n\n' % SECRETS["MY_KEY"].encode()),
}


@pytest.mark.parametrize("wire", ["responses", "chat", "messages"])
@pytest.mark.parametrize("failure", [*FAILURES, "nobody there"])
async def test_a_failing_request_tells_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, failure: str, wire: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    events: list[Any] = []
    with ScriptedModel([FAILURES.get(failure, "x")] * 3) as server:
        base = "http://127.0.0.1:1/v1" if failure == "nobody there" else server.base_url
        at = base.replace("http://", f"http://ann:{secret('password')}@")
        provider = ProviderSettings(
            name="mine", base_url=f"{at}?token={secret('url')}", env_key="MY_KEY", wire_api=wire,
            query_params={"key": secret("query")}, http_headers={"x-fixed": secret("fixed")},
            env_http_headers={"x-more": "MY_HEADER"}, request_max_retries=1, stream_max_retries=1,
        )  # fmt: skip
        web = McpServerSettings(url=f"{at}/mcp?token={secret('mcp-url')}", bearer_token_env_var="MY_BEARER",
                                headers={"x-mcp": secret("mcp-header")}, startup_timeout=5)  # fmt: skip
        local = McpServerSettings(command="false", env={"PASSWORD": secret("mcp-variable")}, startup_timeout=5)
        settings = Settings(
            cwd=str(tmp_path), home=str(tmp_path / "home"), model=ModelSettings(model="m-1"), provider=provider,
            sandbox_policy=DangerFullAccess(), approval_policy=AskForApproval.NEVER,
            mcp_servers={"web": web, "local": local},
        )  # fmt: skip
        async with await open_session(settings, Callbacks(events.append, None), tools=[]) as session:
            with pytest.raises(FerruleError) as failed:
                await session.run("hello")
        assert failure == "nobody there" or any(
            request.headers.get("x-fixed") == secret("fixed") for request in server.requests
        )
    assert MARK not in str(failed.value)
    assert MARK not in caplog.text and (failure == "nobody there" or "key=*****" in caplog.text)
    assert MARK not in "".join(msgspec.json.encode(event, enc_hook=repr).decode() for event in events)
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert files and not [path for path in files if MARK in path.read_text()]


async def test_a_refused_list_of_models_tells_no_secret() -> None:
    key = SECRETS["MY_KEY"]
    with stub(lambda asked: (400, {}, ECHO % asked.headers["authorization"].encode()), gets=True) as url:
        model = open_model(ProviderSettings(name="mine", base_url=url), api_key=key)
        with pytest.raises(ModelError, match=r"Incorrect API key provided: \*{5}") as failed:
            await list_models(model)
        await model.aclose()
    assert MARK not in str(failed.value) and MARK not in failed.value.said
