"""Specs: what the model is sent, on both wires."""

import pytest
from openai.types.chat import ChatCompletionToolUnionParam
from openai.types.responses import ToolParam
from pydantic import TypeAdapter

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.specs import (
    AllowedDomains,
    ApplyPatchTool,
    AutoContainer,
    BearerAuthorization,
    CodeInterpreter,
    ComputerTool,
    ComputerUsePreview,
    ContainerAuto,
    ContainerReference,
    DomainAllowList,
    DomainSecret,
    FileSearch,
    FreeformTool,
    FreeformToolFormat,
    ImageGeneration,
    LocalShell,
    NamespaceTool,
    NetworkAllowlist,
    RawTool,
    RemoteMcp,
    ResponsesApiTool,
    ShellTool,
    ToolSearchTool,
    ToolSpec,
    UserLocation,
    WebSearch,
    WebSearchPreview,
    spec_name,
)

PARAMETERS = JsonSchema(
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
)
FUNCTION = ResponsesApiTool(name="f", description="d", parameters=PARAMETERS, strict=True)
FREEFORM = FreeformTool(name="p", description="d", format=FreeformToolFormat("grammar", "lark", "start: /a/"))

SPECS: list[tuple[ToolSpec, dict[str, object]]] = [
    (
        FUNCTION,
        {"type": "function", "name": "f", "description": "d", "strict": True, "parameters": dict(PARAMETERS.mapping)},
    ),
    (
        FREEFORM,
        {
            "type": "custom",
            "name": "p",
            "description": "d",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"},
        },
    ),
    (LocalShell(), {"type": "local_shell"}),
    (
        WebSearch(
            external_web_access=False,
            search_context_size="low",
            user_location=UserLocation(country="US", city="San Francisco", region="California"),
        ),
        {
            "type": "web_search",
            "external_web_access": False,
            "search_context_size": "low",
            "user_location": {"type": "approximate", "country": "US", "city": "San Francisco", "region": "California"},
        },
    ),
    (
        WebSearch(filters=AllowedDomains(("openai.com",))),
        {"type": "web_search", "filters": {"allowed_domains": ["openai.com"]}},
    ),
    (
        WebSearch(filters=DomainAllowList(("openai.com",))),
        {"type": "web_search", "filters": {"type": "allow_list", "domains": ["openai.com"]}},
    ),
    (WebSearchPreview(search_context_size="high"), {"type": "web_search_preview", "search_context_size": "high"}),
    (
        FileSearch(vector_store_ids=("vs",), max_num_results=5, filters={"type": "and", "filters": []}),
        {
            "type": "file_search",
            "vector_store_ids": ["vs"],
            "max_num_results": 5,
            "filters": {"type": "and", "filters": []},
        },
    ),
    (
        CodeInterpreter(container=AutoContainer(memory_limit="4g", file_ids=("file",))),
        {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "4g", "file_ids": ["file"]}},
    ),
    (CodeInterpreter(container="cntr"), {"type": "code_interpreter", "container": "cntr"}),
    (ComputerTool(), {"type": "computer"}),
    (
        ComputerUsePreview(display_width=1920, display_height=1080, environment="browser"),
        {"type": "computer_use_preview", "display_width": 1920, "display_height": 1080, "environment": "browser"},
    ),
    (ApplyPatchTool(), {"type": "apply_patch"}),
    (ShellTool(), {"type": "shell", "environment": {"type": "local"}}),
    (
        ShellTool(environment=ContainerReference("cntr")),
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr"}},
    ),
    (
        ShellTool(
            environment=ContainerAuto(network_policy=NetworkAllowlist(("a.org",), (DomainSecret("a.org", "KEY", "s"),)))
        ),
        {
            "type": "shell",
            "environment": {
                "type": "container_auto",
                "network_policy": {
                    "type": "allowlist",
                    "allowed_domains": ["a.org"],
                    "domain_secrets": [{"domain": "a.org", "name": "KEY", "value": "s"}],
                },
            },
        },
    ),
    (
        ImageGeneration(model="gpt-image-1", output_format="webp", background="transparent"),
        {"type": "image_generation", "model": "gpt-image-1", "output_format": "webp", "background": "transparent"},
    ),
    (
        RemoteMcp(server_url="https://x", server_label="x", authorization="t"),
        {"type": "mcp", "server_url": "https://x", "server_label": "x", "authorization": "t"},
    ),
    (ToolSearchTool(description="d"), {"type": "tool_search", "execution": "client", "description": "d"}),
    (
        NamespaceTool(name="n", description="d", tools=(FUNCTION,)),
        {"type": "namespace", "name": "n", "description": "d", "tools": [FUNCTION.to_responses()]},
    ),
    (RawTool(definition={"type": "new", "x": 1}), {"type": "new", "x": 1}),
]


@pytest.mark.parametrize(
    ("spec", "wire"), SPECS, ids=lambda value: spec_name(value) if not isinstance(value, dict) else ""
)
def test_the_responses_wire(spec: ToolSpec, wire: dict[str, object]) -> None:
    assert spec.to_responses() == wire
    assert spec.responses_json is spec.responses_json


IN_OLDER_SPELLINGS = {id(SPECS[5][1]), id(SPECS[-1][1])}


@pytest.mark.parametrize("wire", [wire for _, wire in SPECS if id(wire) not in IN_OLDER_SPELLINGS])
def test_the_sdk_takes_them(wire: dict[str, object]) -> None:
    TypeAdapter(ToolParam).validate_python(wire)


def test_the_chat_wire_has_functions_and_custom_tools() -> None:
    function = FUNCTION.to_chat()
    assert function == {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": dict(PARAMETERS.mapping), "strict": True},
    }
    custom = FREEFORM.to_chat()
    assert custom == {
        "type": "custom",
        "custom": {
            "name": "p",
            "description": "d",
            "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/"}},
        },
    }
    for wire in (function, custom):
        TypeAdapter(ChatCompletionToolUnionParam).validate_python(wire)
    assert LocalShell().to_chat() is None
    as_function = FREEFORM.as_function()
    assert as_function.parameters.mapping["required"] == ["input"]
    assert "start: /a/" in as_function.description


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(DomainSecret("d", "n", "hush")) + repr(BearerAuthorization("hush"))
