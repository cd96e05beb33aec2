"""A backend that stands on others: two variants on each of some engines."""

from __future__ import annotations

from typing import ClassVar

from collage_evo.backends.base import Backend, Executable
from collage_evo.backends.variants import Variant
from tests.support.delegating import DelegatingBackend

DEFAULTS = ("openvino", "onnxruntime", "ncnn", "tvm")
ENGINES = (*((name, "default") for name in DEFAULTS), ("openvino", "bf16"))
BELOW = {f"{backend}-{variant}{way}": (backend, variant) for way in ("", "-wide") for backend, variant in ENGINES}


class StandingBackend(DelegatingBackend):
    """Its variants have the names of their engines; nothing is ever loaded."""

    name: ClassVar[str] = "standing"
    variants: ClassVar[tuple[Variant, ...]] = tuple(map(Variant, BELOW))
    least_threads: ClassVar[int] = 2

    def on_threads(self, threads: int) -> Backend:
        return self

    def stands_on(self, variant: Variant) -> tuple[str, str]:
        return BELOW[variant.name]

    def load(self, *piece: object) -> Executable:
        raise NotImplementedError
