"""The screen as a function, for models that have no native form of it.

Source of the actions: `computer_call` of the Responses API.
"""

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonObject

ACTION: JsonObject = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "enum": ["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"],
        },
        "x": {"type": "integer"},
        "y": {"type": "integer"},
        "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]},
        "path": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x", "y"],
            },
            "description": "Points of a drag",
        },
        "keys": {
            "type": "array",
            "items": {"type": "string"},
            "description": 'Of keypress: pressed together, as in ["CTRL", "A"]; of others: held down meanwhile',
        },
        "scroll_x": {"type": "integer", "description": "Pixels to the right"},
        "scroll_y": {"type": "integer", "description": "Pixels down"},
        "text": {"type": "string", "description": "Of type"},
    },
    "required": ["type"],
}
"""One action. A click has `x`, `y` and a button, and so on: servers differ in the alternatives that they take."""

ACTIONS = JsonSchema(
    {
        "type": "object",
        "properties": {"actions": {"type": "array", "items": ACTION}},
        "required": ["actions"],
        "additionalProperties": False,
    }
)
