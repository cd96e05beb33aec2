"""The model's part of the configuration: which it is, and the shapes of its inputs, one or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from collage_evo.errors import ConfigError
from collage_evo.graph.load.open_shapes import Shapes

__all__ = ["LARGEST", "ModelConfig", "Section", "Shapes", "has_ranges"]
LARGEST = 2**63 - 1
"""What ONNX has room for as a size."""


class Section(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Section):
    source: str = Field(description="Path of an ONNX file, or builtin:NAME (builtin:resnet50).")
    shapes: dict[str, int | str | list[int | str | list[int]]] = Field(
        default_factory=dict,
        description="Full shape of each input that has a dynamic dimension; or several shapes, one for each profile "
        "that the answer is to be fast for (an input with one shape has it in all); or ranges as 1..512, in place of "
        "sizes or by the name of a dimension, for one answer that is fast on average for all of them.",
    )
    sizes: Literal["ask", "smallest"] = Field(
        "ask", description="For dynamic dimensions whose size nothing tells: ask, or take the smallest that run."
    )
    seed: int = Field(0, description="Seed of a built-in model's random weights.")

    @field_validator("shapes", mode="before")
    @classmethod
    def _check_shapes(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("give a shape for each input, as {input: [1, 3, 224, 224]}")
        if has_ranges(value):
            return value  # the model's dimensions decide what fits: shapes_in_ranges
        counts = {name: _count(name, shapes) for name, shapes in value.items()}
        several = {name: count for name, count in counts.items() if count > 1}
        if len(set(several.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in several.items())
            raise ValueError(f"the k-th shapes belong together, but {listed}: give as many for each, or one")
        return value

    @property
    def profiles(self) -> tuple[Shapes, ...]:
        """The shapes of each profile; one without shapes where none are given.

        Raises:
            ConfigError: sizes are ranges.
        """
        if has_ranges(self.shapes):
            written = ", ".join(f"{name}: {sizes}" for name, sizes in self.shapes.items()).replace("'", "")
            raise ConfigError(f"model.shapes has ranges ({written}), which only run takes: give sizes")
        several = {name: _shapes(sizes) for name, sizes in self.shapes.items()}
        count = max((len(shapes) for shapes in several.values()), default=1)
        return tuple({name: shapes[k % len(shapes)] for name, shapes in several.items()} for k in range(count))

    def one_profile(self) -> Shapes:
        """The shapes of the only profile.

        Raises:
            ConfigError: there are several, or ranges.
        """
        if len(self.profiles) > 1:
            raise ConfigError(f"model.shapes gives {len(self.profiles)} profiles; only run takes several: give one")
        return self.profiles[0]


def has_ranges(shapes: Mapping[str, Any]) -> bool:
    """Whether some of ``shapes`` are ranges of sizes, such as ``1..512``."""
    several = (sizes if isinstance(sizes, list) else [sizes] for sizes in shapes.values())
    return any(isinstance(size, str) for sizes in several for size in sizes)


def _count(name: str, shapes: Any) -> int:
    """How many shapes ``shapes`` is."""
    several = isinstance(shapes, list) and bool(shapes) and all(isinstance(shape, list) for shape in shapes)
    for shape in shapes if several else [shapes]:
        if not (isinstance(shape, list) and all(type(size) is int and 0 <= size <= LARGEST for size in shape)):
            raise ValueError(f"{name} is {shape}: give sizes, as [1, 3, 224, 224], or a list of such shapes")
    return len(shapes) if several else 1


def _shapes(sizes: Any) -> list[list[int]]:
    """One shape or several, as several."""
    shapes = [part for part in sizes if isinstance(part, list)]
    return shapes or [list(sizes)]
