"""What the tools of sub-agents have in common: an agent's id, what is said to it, and an answer in JSON."""

import json
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import JsonValue
from ferrule.tools.action import Observation

AgentId = Annotated[str, Field(description="The agent's id", validation_alias=AliasChoices("id", "target", "agent_id"))]
"""Models write it under the names of each version of Codex's tools."""


class AgentItem(BaseModel):
    """One item of a message: a text or an image."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: Literal["text", "image"] = Field(default="text", description="One of: text, image")
    text: str | None = Field(default=None, description="The text")
    image_url: str | None = Field(default=None, description="URL of the image")


def content_of(message: str | None, items: list[AgentItem] | None) -> tuple[ContentPart, ...]:
    """Return what is said. Raises `RespondToModel` where it is nothing, or said twice (in Codex's words)."""
    if message is not None and items is not None:
        raise RespondToModel("Provide either message or items, but not both")
    if items is not None:
        if not items:
            raise RespondToModel("Items can't be empty")
        return tuple(_part(item) for item in items)
    if message is None:
        raise RespondToModel("Provide one of: message or items")
    if not message.strip():
        raise RespondToModel("Empty message can't be sent to an agent")
    return (InputText(message),)


def _part(item: AgentItem) -> ContentPart:
    if item.type == "image":
        if not item.image_url:
            raise RespondToModel("an item of type image needs image_url")
        return InputImage(image_url=item.image_url)
    return InputText(item.text or "")


class AgentObservation(Observation):
    """An answer about sub-agents, as JSON."""

    answer: dict[str, JsonValue]

    @property
    def to_llm_content(self) -> str:
        return json.dumps(self.answer, ensure_ascii=False, separators=(",", ":"))
