"""Codec between typed records and JSON, with every value checked against its type.

A record is a dataclass or a named tuple. Its fields are texts, numbers, enumerations, paths, other records, and
tuples, lists, sets and mappings of these, as annotated; ``Any`` stays unchanged. In JSON

- a dataclass is an object, a named tuple a list;
- one of several records (``Job = BuildJob | CostJob``) names its class under ``kind``;
- a set is a sorted list; numbers may be infinite or NaN;
- a type that is annotated with :class:`As` is text.

Unknown keys of a class are ignored, as are values of a list beyond its last field, so that files of newer versions
can be read; missing values take their default. A misspelt key would be ignored too, but no one writes these files by
hand: users write YAML, in which an unknown key is refused (``config.py``).

Why neither pydantic nor msgspec: a worker process and a server of artifacts import this too. That takes 4 ms of
processor time, msgspec 25, pydantic 110; neither has node sets in hexadecimal or several records without more code,
and msgspec refuses infinity and would be one more package to install. 1000 measured placements of 300 operators are
written in 0.16 s (in 1.0 by ``dataclasses.asdict``) and read in 0.17 (in 0.11 by code for each record).
"""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, overload

T = TypeVar("T")
KIND = "kind"
_LIST_LIKE: Mapping[Any, Callable[[Any], Any]] = {tuple: tuple, Sequence: tuple, list: list, frozenset: frozenset}
"""The type as which each container is read."""


@dataclass(frozen=True)
class As:
    """Marks a type, as in ``Annotated[int, As(hex, from_hex)]``, that is text in JSON."""

    write: Callable[[Any], str]
    read: Callable[[str], Any]


class _Form(NamedTuple):
    """Conversion of one type's values to JSON's, and back."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def to_plain(value: Any, kind: Any = None) -> Any:
    """``value`` as JSON's own values; ``kind`` is its type if it is no record, or one of several."""
    return _free(value) if kind is None else _form(kind).write(value)


def to_json(value: Any, kind: Any = None, indent: int | None = None) -> str:
    """``value`` as text; see :func:`to_plain`."""
    return json.dumps(to_plain(value, kind), indent=indent)


def from_plain(data: Any, kind: type[T]) -> T:
    """The value of type ``kind`` from the ``data`` of :func:`to_plain`.

    Raises:
        ValueError: it is none; the message names the part, and the reason.
    """
    return cast(T, _form(cast(Any, kind)).read(data))


@overload
def from_json(text: str | bytes, kind: type[T]) -> T: ...
@overload
def from_json(text: str | bytes, kind: UnionType) -> Any: ...
def from_json(text: str | bytes, kind: Any) -> Any:
    """The value from the text of :func:`to_json`; raises as :func:`from_plain`."""
    return _form(kind).read(json.loads(text))


@functools.cache
def _form(kind: Any) -> _Form:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        mark: As = args[1]
        return _Form(mark.write, lambda data: mark.read(_text(data)))
    if kind is Any:
        return _Form(_free, lambda data: data)
    if origin is Literal:
        return _Form(_free, functools.partial(_one_of, args))
    if origin in (Union, UnionType):
        return _union(args)
    if origin is tuple and args[1:] != (...,):
        return _fixed([_form(arg) for arg in args])
    if origin in _LIST_LIKE:
        return _several(_form(args[0]), _LIST_LIKE[origin])
    if origin in (dict, Mapping):
        return _mapping(int if args[0] is int else _form(args[0]).read, _form(args[1]))
    if is_dataclass(kind) or issubclass(kind, tuple):
        return _record(kind)
    if issubclass(kind, Enum):
        return _Form(lambda value: value.value, kind)
    if kind is Path:
        return _Form(str, lambda data: Path(_text(data)))
    return _Form(lambda value: value, _number if kind is float else functools.partial(_exactly, kind))


def _record(kind: Any) -> _Form:
    hints = typing.get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        names = [one.name for one in fields(kind)]
        needed = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    else:
        names, needed = kind._fields, set(kind._fields) - kind._field_defaults.keys()
    forms = {name: _form(hints[name]) for name in names}

    def write(value: Any) -> Any:
        written = {name: form.write(getattr(value, name)) for name, form in forms.items()}
        return written if is_dataclass(kind) else list(written.values())

    def read(data: Any) -> Any:
        if not is_dataclass(kind):
            data = dict(zip(forms, _exactly(list, data), strict=False))
        values = {}
        for name, form in forms.items():
            if name in _exactly(dict, data):
                try:
                    values[name] = form.read(data[name])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        if missing := needed - values.keys():
            raise ValueError(f"'{min(missing)}' is missing")
        return kind(**values)

    return _Form(write, read)


def _union(kinds: Sequence[Any]) -> _Form:
    """One of several types: records, which name their class, or others, which differ in JSON; or none at all."""
    others = [kind for kind in kinds if kind is not NoneType]
    if len(others) == 1:
        inner = _form(others[0])
    elif all(map(is_dataclass, others)):
        inner = _tagged({kind.__name__: kind for kind in others})
    else:
        inner = _Form(_free, functools.partial(_first_fit, [_form(kind).read for kind in others]))
    if len(others) == len(kinds):
        return inner
    return _Form(
        lambda value: None if value is None else inner.write(value),
        lambda data: None if data is None else inner.read(data),
    )


def _tagged(kinds: Mapping[str, Any]) -> _Form:
    def read(data: Any) -> Any:
        name = _text(_exactly(dict, data).get(KIND))
        if name not in kinds:
            raise ValueError(f"{name!r} is none of {', '.join(kinds)}")
        return _form(kinds[name]).read(data)

    def write(value: Any) -> dict[str, Any]:
        name = type(value).__name__
        return {KIND: name, **_form(kinds[name]).write(value)}

    return _Form(write, read)


def _several(item: _Form, make: Callable[[Any], Any]) -> _Form:
    order = sorted if make is frozenset else list
    return _Form(
        lambda value: [item.write(one) for one in order(value)],
        lambda data: make([item.read(one) for one in _exactly(list, data)]),
    )


def _fixed(items: Sequence[_Form]) -> _Form:
    def read(data: Any) -> tuple[Any, ...]:
        if len(_exactly(list, data)) != len(items):
            raise ValueError(f"{len(data)} values where {len(items)} should be")
        return tuple(item.read(one) for item, one in zip(items, data, strict=True))

    return _Form(lambda value: [item.write(one) for item, one in zip(items, value, strict=True)], read)


def _mapping(read_key: Callable[[Any], Any], item: _Form) -> _Form:
    return _Form(
        lambda value: {str(key): item.write(one) for key, one in value.items()},
        lambda data: {read_key(key): item.read(one) for key, one in _exactly(dict, data).items()},
    )


def _free(value: Any) -> Any:
    """JSON's values for types without an annotation."""
    if is_dataclass(value) and not isinstance(value, type):
        return _form(type(value)).write(value)
    if isinstance(value, Mapping):
        return {str(key): _free(one) for key, one in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(_free, value))
    if isinstance(value, tuple | list):
        return [_free(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def _exactly(kind: Any, data: Any) -> Any:
    if type(data) is not kind:
        raise ValueError(f"{str(data)[:80]!r} is no {kind.__name__}")
    return data


_text = functools.partial(_exactly, str)


def _number(data: Any) -> float:
    if type(data) not in (int, float):
        raise ValueError(f"{str(data)[:80]!r} is no number")
    return float(data)


def _one_of(allowed: Sequence[Any], data: Any) -> Any:
    if data not in allowed:
        raise ValueError(f"{str(data)[:80]!r} is none of {', '.join(map(str, allowed))}")
    return data


def _first_fit(reads: Sequence[Callable[[Any], Any]], data: Any) -> Any:
    for read in reads:
        try:
            return read(data)
        except ValueError as error:
            last = error
    raise last
