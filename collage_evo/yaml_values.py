"""Values that users write, in YAML or as ``key=value``, as plain values; a key may be given only once."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from collage_evo.errors import ConfigError

Overrides = Sequence[str] | Mapping[str, Any]
"""Overrides: each as ``key=value``, or by key."""


MOST_VALUES = 100_000
"""Values in one file, counted for every use of an alias. Chosen: a few lines of aliases can stand for 2^64."""


class Refused(yaml.YAMLError):
    """Values that no configuration has; the message names the place and the error."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                line = key.start_mark.line + 1
                raise Refused(f"line {line}: the key {key.value!r} is given a second time: remove one of the two")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """The plain values in ``text``.

    Raises:
        Refused: a key has two values, one contains itself or a NUL character, or aliases stand for too many.
        yaml.YAMLError: it is no YAML for another reason.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count(node: yaml.Node, counts: dict[int, int]) -> int:
    """Number of values in ``node``; ``counts`` has the number of each counted node, and 0 while it is counted."""
    line = node.start_mark.line + 1
    if id(node) in counts:
        if not counts[id(node)]:
            raise Refused(f"line {line}: a value that contains itself: write out the value without the alias")
        return counts[id(node)]
    counts[id(node)] = 0
    parts = node.value if isinstance(node, yaml.CollectionNode) else []
    inner = [part for pair in parts for part in pair] if isinstance(node, yaml.MappingNode) else parts
    count = 1 + sum(_count(part, counts) for part in inner)
    if count > MOST_VALUES:
        raise Refused(f"line {line}: more than {MOST_VALUES:,} values, by aliases of aliases: write fewer")
    if isinstance(node, yaml.ScalarNode) and "\0" in node.value:
        raise Refused(f"line {line}: a value with a NUL character, which no name of a file has: remove it")
    counts[id(node)] = count
    return count


def read_override(override: str) -> tuple[str, Any]:
    """Key and value of ``key=value``, the value in YAML.

    Raises:
        ConfigError: it is none.
    """
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"-s {override}: write it as key=value, for example -s search.seconds=60")
    try:
        return key, load_yaml(text)
    except Refused as error:
        raise ConfigError(f"-s {override}: {error}") from None
    except Exception:  # for a value of its own kind, such as a date, the library raises various types
        raise ConfigError(f"-s {override[:80]!r}: the value is not YAML") from None


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with keys such as ``search.seconds`` moved into the sections that they name.

    Raises:
        ConfigError: a key is given in both forms, or a section is no mapping.
    """
    sections = copy.deepcopy({key: value for key, value in values.items() if "." not in key})
    for key, value in values.items():
        if "." in key:
            section, last = _section_of(sections, key)
            if last in section:
                raise ConfigError(f"{key} is given a second time: remove one of the two")
            section[last] = value
    return sections


def by_key(overrides: Overrides) -> dict[str, Any]:
    """Values by key, whether they are so already or each is ``key=value``. Raises as :func:`read_override`."""
    return dict(overrides) if isinstance(overrides, Mapping) else dict(map(read_override, overrides))


def overridden(data: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """A copy of nested ``data`` with ``overrides`` in place of some values.

    Raises:
        ConfigError: an override is not ``key=value``, or a section is no mapping.
    """
    values = copy.deepcopy(dict(data))
    for key, value in by_key(overrides).items():
        section, last = _section_of(values, key)
        section[last] = value
    return values


def default_key(data: dict[str, Any], key: str, value: Any) -> None:
    """Put ``value`` into nested ``data`` if ``key`` is missing.

    Raises:
        ConfigError: a section is no mapping.
    """
    section, last = _section_of(data, key)
    section.setdefault(last, value)


def _section_of(data: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The part of ``data`` that contains the last name of ``key``, created if missing."""
    *sections, last = key.split(".")
    for section in sections:
        inner = data.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{key}: {section} holds no keys")
        data = inner
    return data, last
