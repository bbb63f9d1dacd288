"""The groups of checks, a module each."""

from ferrule.conformance.checks import CHECKS
from ferrule.conformance.groups import (
    background,
    compaction,
    completeness,
    containers,
    errors,
    files,
    ids,
    mcp,
    order,
    skills,
    state,
    translation,
    unknown,
    usage,
    vector_stores,
    web_search,
    websocket,
)

__all__ = [
    "CHECKS",
    "background",
    "compaction",
    "completeness",
    "containers",
    "errors",
    "files",
    "ids",
    "mcp",
    "order",
    "skills",
    "state",
    "translation",
    "unknown",
    "usage",
    "vector_stores",
    "web_search",
    "websocket",
]
