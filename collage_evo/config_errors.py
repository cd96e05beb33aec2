"""Messages for configuration errors: one line that names the key and the nearest one that exists."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first error in values for ``model``, and what to write instead, in one line."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    where = ".".join(place)
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        near = difflib.get_close_matches(place[-1], _keys_at(model, place[:-1]), 1)
        hint = f"did you mean {'.'.join([*place[:-1], near[0]])}?" if near else "see: config --schema"
        return f"unknown key {where}; {hint}"
    if first["type"] == "missing":
        return f"{where} is missing: give it in the configuration, or as -s {where}=..."
    if first["type"] == "value_error":
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    return f"{where}: {first['msg'][0].lower()}{first['msg'][1:]} (given: {first['input']!r})"


def _keys_at(model: type[BaseModel], place: Sequence[str]) -> list[str]:
    schema: Mapping[str, Any] = model.model_json_schema()
    definitions = schema.get("$defs", {})
    at: Mapping[str, Any] = schema
    for part in place:
        at = at.get("properties", {}).get(part, {})
        for reference in (at, *at.get("allOf", ()), *at.get("anyOf", ())):
            if "$ref" in reference:
                at = definitions[reference["$ref"].rsplit("/", 1)[-1]]
                break
    return list(at.get("properties", {}))
