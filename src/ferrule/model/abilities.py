"""Ask a model server of the user's own what it can: tools, images, the size of its window.

Sources: llama.cpp's `/props`, Ollama's `/api/show` and `/api/ps`, LM Studio's `/api/v0/models`, `max_model_len` in the
`/v1/models` of vLLM and SGLang.
"""

import asyncio
import ipaddress
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ferrule.model.http import Looked, Server
from ferrule.model.profiles import Profiles

LONGEST_WAIT_S = 3.0
"""For all questions together, asked while the model works. A server at home answers within milliseconds; only a turn
that is over sooner waits for one that is silent."""

LOCAL_PROFILES = ("ollama", "lmstudio", "llamacpp", "vllm", "sglang")
"""Profiles of servers that people run themselves."""

OLLAMA_WINDOW = 4_096
"""Ollama's window on most machines, whatever the model could take, unless `num_ctx` or its environment says more."""

_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)
_UNKNOWN_PATH = (404, 405)
_KNOWS_PATHS = (200, 401, 403, *_UNKNOWN_PATH)
"""Statuses of servers that are asked more; LM Studio has 200 for a path that it does not know."""

Json = Mapping[str, Any]
_NOTHING: Json = {}


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself and the model. None: it does not say.

    `longest` is the window that the model could have; `is_default`: nobody has chosen `window`, and it may be larger.
    """

    server: str
    tools: bool | None = None
    images: bool | None = None
    window: int | None = None
    longest: int | None = None
    is_default: bool = False

    def in_words(self) -> list[str]:
        """Return what is known, for people."""
        can = {"tools": self.tools, "images": self.images}
        words = [f"{name}: {'yes' if able else 'no'}" for name, able in can.items() if able is not None]
        if self.window is not None:
            words.append(f"context window: {self.window:,} tokens" + " by default" * self.is_default)
        return words or ["nothing said"]


def is_own(profiles: Profiles, profile: str, base_url: str) -> bool:
    """Return whether a server is the user's own: on this machine or in a private network, or of a kind that people run
    themselves. The host of a known provider never is."""
    host = (urlsplit(base_url).hostname or "").lower()
    if any(known.owns(host) or _is_home(known.base_url, host) for known in profiles.providers.values()):
        return False
    return profile in LOCAL_PROFILES or is_private(host)


def _is_home(base_url: str | None, host: str) -> bool:
    """Return whether a profile's address is this host, elsewhere than on the user's machine."""
    home = urlsplit(base_url or "").hostname
    return home == host and not is_private(host)


def is_private(host: str) -> bool:
    """Return whether a host name stands for this machine or one in a private network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa", ".localhost"))
    return address.is_private or address.is_loopback


async def ask_abilities(server: Server, profile: str, model: str) -> Abilities | None:
    """Return what the server says; None if it says nothing in time. Never raises."""
    try:
        async with asyncio.timeout(LONGEST_WAIT_S):
            return await _ask(server, profile, model)
    except TimeoutError:
        return None


async def _ask(server: Server, profile: str, model: str) -> Abilities | None:
    if profile == "ollama" and (found := await _ask_ollama(server, model)) is not None:
        return found
    props = await server.look_up("/props")
    if (found := _of_llamacpp(_object(props))) is not None:
        return found
    if props.status not in _KNOWS_PATHS:
        return None
    models, listed = await asyncio.gather(server.look_up("/models", below_root=False), server.look_up("/api/v0/models"))
    if (found := _of_lmstudio(_entry(listed, model))) is not None:
        return found
    entry = _entry(models, model)
    if _number(entry.get("max_model_len")) is not None:
        title = "SGLang" if entry.get("owned_by") == "sglang" else "vLLM"
        return Abilities(server=title, window=_number(entry["max_model_len"]))
    # Only a server that tells paths apart is posted to: another one could take this for a request to its model.
    return await _ask_ollama(server, model) if props.status in _UNKNOWN_PATH else None


def _of_llamacpp(props: Json) -> Abilities | None:
    template, generation = props.get("chat_template"), _dict(props.get("default_generation_settings"))
    if not isinstance(template, str) and "n_ctx" not in generation:
        return None
    caps = _dict(props.get("chat_template_caps"))
    tools = caps.get("supports_tools")
    if not isinstance(tools, bool):
        own = props.get("chat_template_tool_use")
        tools = "tools" in template or bool(own) if isinstance(template, str) and template else None
    images = _dict(props.get("modalities")).get("vision")
    return Abilities(
        server="llama.cpp",
        tools=tools,
        images=images if isinstance(images, bool) else None,
        window=_number(generation.get("n_ctx")) or _number(props.get("n_ctx")),
    )


def _of_lmstudio(entry: Json) -> Abilities | None:
    kind, capabilities = entry.get("type"), entry.get("capabilities")
    if kind not in ("llm", "vlm"):
        return None
    return Abilities(
        server="LM Studio",
        tools="tool_use" in capabilities if isinstance(capabilities, list) else None,
        images=kind == "vlm",
        window=_number(entry.get("loaded_context_length")),
        longest=_number(entry.get("max_context_length")),
    )


async def _ask_ollama(server: Server, model: str) -> Abilities | None:
    question = msgspec.json.encode({"model": model})
    shown, running = await asyncio.gather(server.look_up("/api/show", question), server.look_up("/api/ps"))
    told = _object(shown)
    capabilities, info = told.get("capabilities"), _dict(told.get("model_info"))
    if not isinstance(capabilities, list) and not info:
        return None
    said = capabilities if isinstance(capabilities, list) else None
    longest = next((_number(value) for key, value in info.items() if key.endswith(".context_length")), None)
    chosen = _NUM_CTX.search(str(told.get("parameters") or ""))
    loaded = _number(_entry(running, model).get("context_length"))
    window = loaded or (int(chosen[1]) if chosen else None)
    return Abilities(
        server="Ollama",
        tools=None if said is None else "tools" in said,
        images=None if said is None else "vision" in said,
        window=window or min(OLLAMA_WINDOW, longest or OLLAMA_WINDOW),
        longest=longest,
        is_default=window is None,
    )


def _entry(looked: Looked, model: str) -> Json:
    """Return what a list of models says of this one, or of its only one."""
    answer = _object(looked)
    listed = answer.get("data") or answer.get("models")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    wanted = {model, f"{model}:latest"}
    named = (
        entry for entry in entries if not wanted.isdisjoint(str(entry.get(key)) for key in ("id", "name", "model"))
    )
    return next(named, entries[0] if len(entries) == 1 else _NOTHING)


def _object(looked: Looked) -> Json:
    return _dict(looked.value)


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else _NOTHING


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40 else None


# --- what the user is told


ROOM = 2_048
"""Tokens that a task and one answer need beside the instructions and the tools, at the very least."""

_LONGER = {
    "llama.cpp": "start llama-server with a larger --ctx-size",
    "Ollama": "set num_ctx in a Modelfile, or OLLAMA_CONTEXT_LENGTH for the server",
    "LM Studio": "load the model with a longer context",
    "vLLM": "start the server with a larger --max-model-len",
    "SGLang": "start the server with a larger --context-length",
}


class Wanted(msgspec.Struct, frozen=True):
    """What a session wants of its server. `opening`: tokens of the instructions and the tools; `native`: calls are the
    server's to read; `window`: the user's own word on its size."""

    opening: int
    tools: bool = True
    images: bool = False
    native: bool = True
    window: int | None = None


def shortcomings(found: Abilities, model: str, wanted: Wanted) -> list[str]:
    """Return one sentence for each thing that the server cannot do, with the next step."""
    told = []
    if found.tools is False and wanted.tools and wanted.native:
        step = "start it with a template that does (--jinja, --chat-template-file), or " * (found.server == "llama.cpp")
        told.append(
            f"{found.server} says that {model} takes no tools, so it will not call any: {step}"
            'set tool_calls = "text" for this provider, or choose another model with -m'
        )
    window = wanted.window or found.window
    if window is not None and wanted.opening + ROOM > window:
        advice = _LONGER.get(found.server, "give the model a larger window")
        default = " by default" if found.is_default and not wanted.window else ""
        able = f" ({model} could have {found.longest:,})" if found.longest and found.longest > window else ""
        told.append(
            f"the context window at {found.server} has {window:,} tokens{default}{able}, too few for the instructions "
            f"and tools, which take about {wanted.opening:,}: {advice}, or offer fewer tools"
        )
    if found.images is False and wanted.images:
        told.append(f"{found.server} says that {model} takes no images: choose a model with vision, with -m")
    return told
