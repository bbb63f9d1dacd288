"""The arguments of a function: as a pydantic model, and as a Struct where JSON itself has all their types.

msgspec makes a Struct in a tenth of the time that pydantic takes to make a model, and reads one in a fifth.
"""

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.docstrings import Docstring, read_docstring
from ferrule.schemas.writer import shortest

if TYPE_CHECKING:
    from pydantic import BaseModel

_PLAIN: tuple[tuple[Any, dict[str, JsonValue]], ...] = (
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (Any, {}),
)
_PLAIN_DEFAULTS = (NoneType, str, int, float, bool)


class Signature(msgspec.Struct, frozen=True):
    """A function's parameters but for those `hidden` from models, the types of all by name, and what is documented."""

    function: Callable[..., object]
    parameters: Mapping[str, inspect.Parameter]
    hidden: tuple[str, ...]
    hints: Mapping[str, Any]
    docstring: Docstring


def read_signature(function: Callable[..., object], hidden: type[object] | None = None) -> Signature:
    """Read the signature of `function`. Parameters of the type `hidden` are not for models.

    Raises TypeError if a parameter cannot be given by keyword, and NameError if a type cannot be found.
    """
    hints = get_type_hints(function, include_extras=True)
    every = inspect.signature(function).parameters
    skipped = () if hidden is None else tuple(name for name in every if hints.get(name) is hidden)
    parameters = {name: parameter for name, parameter in every.items() if name not in skipped}
    for name, parameter in parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"{function.__name__}: a model gives arguments by name, which {parameter} ({name}) cannot take"
            )
    return Signature(function, parameters, skipped, hints, read_docstring(inspect.getdoc(function)))


class PlainArguments(msgspec.Struct, frozen=True):
    """Arguments of JSON's own types: a Struct whose fields are the keywords of a call, and its schema."""

    struct: type[msgspec.Struct]
    schema: JsonSchema


def plain_arguments(signature: Signature) -> PlainArguments | None:
    """Return the arguments as msgspec reads them, exactly as their `signature_model` does. None if a type or a default
    is none of JSON's own, or has conditions: only pydantic can tell what is right then."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    properties: dict[str, JsonValue] = {}
    required = []
    for name, parameter in signature.parameters.items():
        hint, description = signature.hints.get(name, Any), signature.docstring.parameters.get(name)
        if get_origin(hint) is Annotated:
            hint, *metadata = get_args(hint)
            description = _only_description(metadata)
            if description is None:
                return None
        plain, default = _plain_schema(hint), parameter.default
        if plain is None:
            return None
        properties[name] = plain | ({"description": description} if description else {})
        if default is parameter.empty:
            fields.append((name, hint))
            required.append(name)
        elif type(default) in _PLAIN_DEFAULTS:
            fields.append((name, hint, default))
            properties[name]["default"] = default
        else:
            return None
    struct = msgspec.defstruct("Arguments", fields, kw_only=True)
    schema = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    return PlainArguments(struct, shortest(schema))


def _only_description(metadata: list[Any]) -> str | None:
    """Return the description if a pydantic `Field` with nothing else is all that the metadata consist of."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    if len(metadata) != 1 or type(metadata[0]) is not FieldInfo or not metadata[0].description:
        return None
    words = metadata[0].description
    return words if repr(metadata[0]) == repr(Field(description=words)) else None


def _plain_schema(hint: Any) -> dict[str, JsonValue] | None:
    """Return the schema of a type that pydantic, when it is strict, and msgspec read alike; None for any other."""
    for plain, schema in _PLAIN:
        if hint is plain:
            return dict(schema)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal and all(type(part) is str for part in parts):
        return {"type": "string", "enum": [*parts]}
    if origin is list and (items := _plain_schema(parts[0])) is not None:
        return {"type": "array", "items": items}
    if origin is dict and parts[0] is str and (values := _plain_schema(parts[1])) is not None:
        return {"type": "object", "additionalProperties": values or True}
    if origin in (Union, UnionType) and len(parts) == 2 and parts[1] is NoneType and (some := _plain_schema(parts[0])):
        return {"anyOf": [some, {"type": "null"}]}
    return None


def signature_model(signature: Signature, base: "type[BaseModel] | None" = None) -> "type[BaseModel]":
    """Create a pydantic model of the arguments, named after the function; `keyword_arguments` turns an instance into
    them. Descriptions come from `Annotated[..., Field(description=...)]`, else from the docstring."""
    from pydantic import BaseModel, create_model

    base = base or BaseModel
    descriptions = signature.docstring.parameters
    fields: dict[str, Any] = {
        _field_name(name, base): (
            _described(signature.hints.get(name, Any), descriptions.get(name)),
            _field(name, parameter, base),
        )
        for name, parameter in signature.parameters.items()
    }
    function, doc = signature.function, signature.docstring.description
    return create_model(function.__name__, __base__=base, __module__=function.__module__, __doc__=doc, **fields)


def keyword_arguments(arguments: "BaseModel") -> dict[str, object]:
    """Return the keywords of a call from an instance of its `signature_model`: those that were given."""
    fields = type(arguments).model_fields
    return {fields[name].alias or name: getattr(arguments, name) for name in arguments.model_fields_set}


def _field_name(name: str, base: "type[BaseModel]") -> str:
    """Return `name`, changed if pydantic would refuse it or it would hide something of `base`."""
    taken = hasattr(base, name) or name.startswith(("_", "model_"))
    return f"{name.strip('_')}_" if taken else name


def _described(hint: Any, text: str | None) -> Any:
    """Add a description to `hint`; the author's own is further in, and wins."""
    from pydantic import Field

    if not text:
        return hint
    inner, *metadata = (get_args(hint)[0], *hint.__metadata__) if get_origin(hint) is Annotated else (hint,)
    return Annotated[(inner, Field(description=text), *metadata)]


def _field(name: str, parameter: inspect.Parameter, base: "type[BaseModel]") -> Any:
    from pydantic import Field

    alias = name if _field_name(name, base) != name else None
    default: Any = ... if parameter.default is parameter.empty else parameter.default
    return Field(default, alias=alias)
