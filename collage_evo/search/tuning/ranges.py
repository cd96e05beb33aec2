"""Ranges of settings, ``{low, high}`` or ``{choices}``, from which Optuna draws values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna

from collage_evo.errors import ConfigError

Range = Mapping[str, Any]
"""``{low, high}`` (with ``log`` or ``step``), or ``{choices: [...]}``."""


def check_range(name: str, spec: Range) -> None:
    """
    Raises:
        ConfigError: ``spec`` is no range; the message names ``name``.
    """
    keys = set(spec)
    numeric = {"low", "high"} <= keys <= {"low", "high", "log", "step"}
    if not (numeric and spec["low"] <= spec["high"]) and not (keys == {"choices"} and spec["choices"]):
        raise ConfigError(f"{name} must be {{low, high}} (with log or step) or {{choices: [...]}}")


def suggest(trial: optuna.Trial, name: str, spec: Range, whole: bool) -> Any:
    """A value for this trial; an integer if ``whole``."""
    if "choices" in spec:
        return trial.suggest_categorical(name, spec["choices"])
    low, high, log, step = spec["low"], spec["high"], bool(spec.get("log", False)), spec.get("step")
    if whole:
        return trial.suggest_int(name, int(low), int(high), step=int(step or 1), log=log)
    return trial.suggest_float(name, low, high, step=step, log=log)


def grid_values(name: str, spec: Range, whole: bool) -> list[Any]:
    """Every value of a range, for a grid.

    Raises:
        ConfigError: it has no steps.
    """
    if "choices" in spec:
        return list(spec["choices"])
    step = spec.get("step") or (1 if whole else None)
    if step is None or spec.get("log"):
        raise ConfigError(f"{name}: a grid needs choices, or low, high and step")
    count = int((spec["high"] - spec["low"]) / step + 1e-9) + 1
    return [spec["low"] + index * step for index in range(count)]


def contains(spec: Range, value: Any) -> bool:
    """Whether ``value`` is in the range."""
    return value in spec["choices"] if "choices" in spec else bool(spec["low"] <= value <= spec["high"])
