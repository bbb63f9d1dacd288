"""Real servers of other people, through a whole session: `scripts/compat_mcp` installs and runs them."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ferrule import Agent
from ferrule.config.mcp_json import mcp_servers_of
from ferrule.mcp import MCPClient, MCPToolObservation
from ferrule.mcp.content import parts_of
from ferrule.protocol.content import InputImage
from ferrule.testing import ScriptedModel, function_call, message
from ferrule.tools.questions import Elicited


def script_of(modules: Path, package: str) -> str:
    """The program of an npm package."""
    folder = modules / "@modelcontextprotocol" / package
    (program,) = set(json.loads((folder / "package.json").read_text())["bin"].values())
    return str(folder / program)


async def everything(modules: Path) -> None:
    config = {"command": "node", "args": [script_of(modules, "server-everything"), "stdio"], "approval": "allow"}
    asked: list[str] = []

    async def ask(question: Any) -> Elicited:
        asked.append(question.message)
        return Elicited("decline")

    settings = mcp_servers_of({"mcpServers": {"everything": config}})["everything"]
    async with MCPClient("everything", settings, ask=ask) as client:
        names = {tool.name for tool in await client.list_tools()}
        print(f"server-everything: {len(names)} tools: {', '.join(sorted(names))}")
        echo = await client.call_tool("echo", {"message": "hello"})
        assert echo["content"][0]["text"] == "Echo: hello", echo
        image = await client.call_tool("get-tiny-image", {})
        assert any(isinstance(part, InputImage) for part in parts_of(image)), parts_of(image)
        steps: list[float] = []
        slow = {"duration": 1, "steps": 4}
        await client.call_tool(
            "trigger-long-running-operation", slow, on_progress=lambda step, total, text: steps.append(step)
        )
        assert steps == [1, 2, 3, 4], steps
        structured = await client.call_tool("get-structured-content", {"location": "New York"})
        observation = MCPToolObservation(server="everything", tool="s", result=structured)
        assert str(observation.to_llm_content).count("temperature") == 1, observation.to_llm_content
        listed = await client.request("resources/list", {"cursor": None})
        uri = listed["resources"][0]["uri"]
        read = await client.request("resources/read", {"uri": uri})
        assert read["contents"], read
        if "trigger-elicitation-request" in names:
            await client.call_tool("trigger-elicitation-request", {})
            assert asked, "nothing was asked"
    print("server-everything: calls, images, progress, structured content, resources, elicitation: good")


async def filesystem(modules: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.txt").write_text("some text")
        config = {"command": "node", "args": [script_of(modules, "server-filesystem"), folder], "approval": "allow"}
        script = [
            [
                function_call("mcp__filesystem__read_text_file", {"path": f"{folder}/a.txt"}),
                function_call("mcp__filesystem__write_file", {"path": f"{folder}/b.txt", "content": "new"}),
                function_call("mcp__filesystem__read_text_file", {"path": "/etc/passwd"}),
            ],
            [message("done")],
        ]
        with ScriptedModel(script) as model:
            servers = {"mcpServers": {"filesystem": config}}
            agent = Agent("m", tools=[], base_url=model.base_url, cwd=folder, mcp_config=servers)
            await agent.run("go")
            read, wrote, refused = (output.text for output in model.requests[1].outputs)
        assert read == "some text", read
        assert Path(folder, "b.txt").read_text() == "new", wrote
        assert "The tool reported an error" in refused, refused
    print("server-filesystem: read, write, a refusal: good")


async def main() -> None:
    modules = Path(sys.argv[1])
    await everything(modules)
    await filesystem(modules)


if __name__ == "__main__":
    asyncio.run(main())
