"""The argument in which a model states the risk of its own call."""

import msgspec

from ferrule.protocol.approvals import SecurityRisk
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.specs import ResponsesApiTool, ToolSpec

RISK_FIELD = "security_risk"
_RISK_SCHEMA = {
    "type": "string",
    "enum": [risk.value for risk in SecurityRisk],
    "description": "Your own estimate of the harm that this call can do: low (reads, or changes only this project), "
    "medium (changes that are easily undone elsewhere), high (deletes, sends data away, changes the system), unknown",
}


def with_risk_field(spec: ToolSpec) -> ToolSpec:
    """Add the argument for the model's estimate to the spec of a function. Other specs stay unchanged."""
    if not isinstance(spec, ResponsesApiTool):
        return spec
    mapping = dict(spec.parameters.mapping)
    mapping["properties"] = {**mapping.get("properties", {}), RISK_FIELD: _RISK_SCHEMA}
    mapping["required"] = [*mapping.get("required", []), RISK_FIELD]
    return msgspec.structs.replace(spec, parameters=JsonSchema(mapping))
