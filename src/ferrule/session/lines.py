"""The payloads of a session file's lines, as `rollout` writes and `replay` reads them."""

from itertools import repeat

import msgspec

from ferrule._version import __version__
from ferrule.model.lessons import Lesson
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import Origin, ResponseItem, read_item
from ferrule.protocol.permissions import AskForApproval, SandboxPolicy
from ferrule.protocol.redaction import without_secrets
from ferrule.protocol.settings import CompactedBy, ProviderSettings, ToolCallForm
from ferrule.protocol.specs import Wire


class SessionMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a rollout."""

    id: str
    timestamp: str
    cwd: str
    originator: str = "ferrule"
    cli_version: str = __version__
    model_provider: str = ""
    instructions: str | None = None
    parent_thread_id: str | None = None
    """The session that started this one as a sub-agent."""
    agent_role: str | None = None
    forked_from_id: str | None = None
    """The session that this one is a copy of."""


class StoredProvider(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server of a turn: of keys only the names of their variables, no header values, no query."""

    name: str
    base_url: str | None = None
    wire_api: Wire | None = None
    profile: str | None = None
    env_key: str | None = None
    env_http_headers: dict[str, str] = {}
    compaction: CompactedBy | None = None
    tool_calls: ToolCallForm | None = None

    @classmethod
    def of(cls, provider: ProviderSettings) -> "StoredProvider":
        """Return what is stored of a provider."""
        url = provider.base_url
        return cls(
            provider.name,
            None if url is None else without_secrets(url),
            provider.wire_api,
            provider.profile,
            provider.env_key,
            provider.env_http_headers,
            provider.compaction,
            provider.tool_calls,
        )

    def is_that_of(self, provider: ProviderSettings | None) -> bool:
        """Return whether the configured provider is this one, with all that is not stored of it."""
        return provider is not None and StoredProvider.of(provider) == self

    def settings(self) -> ProviderSettings:
        """Return the settings of this provider."""
        return ProviderSettings(**msgspec.structs.asdict(self))


class TurnContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a turn; written once per turn."""

    cwd: str
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    model: str
    profile: str | None = None
    provider: StoredProvider | None = None
    tools: tuple[str, ...] | None = None
    turn_id: str = ""
    """Empty in files of older versions."""


class Compacted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A compaction: the summary, and the whole history that replaces what stands before this line. `origins` has who
    made each item of it; Codex writes none, and in older versions no history either."""

    message: str = ""
    replacement_history: tuple[msgspec.Raw, ...] | None = None
    origins: tuple[Origin | None, ...] = ()
    checkpoint: msgspec.Raw = msgspec.Raw()
    """A `Checkpoint`; older versions and Codex write none."""

    def history(self) -> list[ResponseItem]:
        """Return the items that go on. Raises `msgspec.DecodeError`."""
        raws = self.replacement_history or ()
        origins = (*self.origins, *repeat(None, len(raws)))
        return [read_item(bytes(raw), origin) for raw, origin in zip(raws, origins, strict=False)]


class TokenCount(msgspec.Struct, tag="token_count"):
    usage: TokenUsage | None


class ServerLesson(msgspec.Struct, tag="server_lesson"):
    lesson: Lesson


class ImagesRefused(msgspec.Struct, frozen=True, tag="images_refused"):
    """Items whose images a server refused, by the marks of their bytes."""

    provider: str
    model: str
    items: frozenset[str]


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a reader needs of the lines before a compaction, beside the head: with it, reading begins there."""

    context: TurnContext | None = None
    lessons: tuple[Lesson, ...] = ()
    refused: tuple[ImagesRefused, ...] = ()
