"""Values that people write: takes YAML or ``key=value``, gives plain values; no key may be given twice."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from collage_evo.errors import ConfigError

Overrides = Sequence[str] | Mapping[str, Any]
"""Values in place of others: each as ``key=value``, or by key."""


class GivenTwice(yaml.YAMLError):
    """One of two values would be lost; the message says where."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                line = key.start_mark.line + 1
                raise GivenTwice(f"line {line}: the key {key.value!r} is given a second time: remove one of the two")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """The plain values that ``text`` is.

    Raises:
        GivenTwice: a key has two values.
        yaml.YAMLError: it is no YAML for another reason.
    """
    return yaml.load(text, _Loader)  # a kind of safe loader


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
    except GivenTwice as error:
        raise ConfigError(f"-s {override}: {error}") from None
    except Exception:  # of a value of its own kind, such as a date, the library raises whatever comes
        raise ConfigError(f"-s {override[:80]!r}: the value is not YAML") from None


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with keys such as ``search.seconds`` in the sections that they name.

    Raises:
        ConfigError: a key is given in both forms, or what should hold keys holds none.
    """
    found = copy.deepcopy({key: value for key, value in values.items() if "." not in key})
    for key, value in values.items():
        if "." in key:
            section, last = _section_of(found, key)
            if last in section:
                raise ConfigError(f"{key} is given a second time: remove one of the two")
            section[last] = value
    return found


def by_key(overrides: Overrides) -> dict[str, Any]:
    """Values by key, whether they are so already or each is ``key=value``. Raises as :func:`read_override`."""
    return dict(overrides) if isinstance(overrides, Mapping) else dict(map(read_override, overrides))


def override_key(data: dict[str, Any], key: str, value: Any) -> None:
    """Put ``value`` into nested ``data``, at a key such as ``search.seconds``.

    Raises:
        ConfigError: what should hold keys holds none.
    """
    section, last = _section_of(data, key)
    section[last] = value


def default_key(data: dict[str, Any], key: str, value: Any) -> None:
    """Put ``value`` into nested ``data`` where nothing is at ``key``. Raises as :func:`override_key`."""
    section, last = _section_of(data, key)
    section.setdefault(last, value)


def _section_of(data: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The part of ``data`` that holds the last name of ``key``, made where it is not there."""
    *sections, last = key.split(".")
    for section in sections:
        inner = data.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{key}: {section} holds no keys")
        data = inner
    return data, last
