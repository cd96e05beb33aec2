"""Plans of compiled pieces as JSON: takes a frozen dataclass, gives text; takes such text, gives the dataclass.

For what serving reads, which has no pydantic. What is read may come from anybody: every value is of its field's type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from collage_evo.files import BUILD_ANEW, reading

T = TypeVar("T")


def to_json(plan: Any) -> str:
    """``plan`` as :func:`from_json` reads it."""
    return json.dumps(asdict(plan))


def from_json(kind: type[T], text: str) -> T:
    """The ``kind``, a dataclass, that :func:`to_json` wrote. Fields may be dataclasses, tuples, mappings, literals.

    Raises:
        RecursionError, TypeError, ValueError: it is no such text.
    """
    made: T = _typed(kind, json.loads(text))
    return made


def read_plan(path: Path, kind: type[T]) -> T:
    """The ``kind`` that the file of a piece holds.

    Raises:
        DamagedFile: it cannot be read, or holds something else.
    """
    with reading(path, BUILD_ANEW):
        return from_json(kind, path.read_text())


def _typed(kind: Any, value: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = get_type_hints(kind)
        return kind(**{name: _typed(hints.get(name, Literal[()]), one) for name, one in value.items()})
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(parts[0], one) for one in value)
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict):
        return {key: _typed(parts[1], one) for key, one in value.items()}
    if origin is UnionType:
        return _typed(next((part for part in parts if _is(part, value)), parts[0]), value)
    if not _is(kind, value):
        raise ValueError(f"{value!r:.60} is not what it should be")
    return value


def _is(kind: Any, value: Any) -> bool:
    """Whether ``value`` may be a ``kind``, as far as the outermost of it tells."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list)
    return type(value) is kind or (kind is float and type(value) is int)
