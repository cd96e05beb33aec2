"""Who takes part: what is usable here and serves the device that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import ClassVar

import pytest

from collage_evo.backends import registry
from collage_evo.backends.base import Backend, Executable, Probe
from collage_evo.backends.select import select_backends, whole_variants
from collage_evo.backends.variants import Variant, takes_part
from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.graph.ir.graph import Tensor
from collage_evo.hardware.target import Target
from tests.support.delegating import DelegatingBackend


class Fake(DelegatingBackend):
    """``missing``: why it cannot be used; ``why``: why it declines variants on cuda."""

    missing: ClassVar[str] = ""
    why: ClassVar[str] = ""

    def probe(self) -> Probe:
        return Probe(not self.missing, "1", self.missing)

    def declines(self, variant: Variant) -> str:
        return self.why if variant.device == "cuda" else ""

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Executable:
        return self.load_honest(workdir, target, inputs, outputs)


class OnOthers(Fake):
    """A backend that stands on others, for targets of two threads and more."""

    least_threads = 2

    def on_threads(self, threads: int) -> Backend:
        return self

    def stands_on(self, variant: Variant) -> tuple[str, str]:
        return ("a", "default")


Know = Callable[..., None]


@pytest.fixture
def know(monkeypatch: pytest.MonkeyPatch, registry_alone: None) -> Know:
    """Registers a backend with a variant on each device; no other one is installed."""
    monkeypatch.setattr(registry, "entry_points", lambda: EntryPoints(()))

    def know(name: str, *devices: str, kind: type[Backend] = Fake, **answers: str) -> None:
        variants = tuple(Variant(f"on-{device}", device=device) for device in devices)
        own = {"name": name, "variants": variants, "__module__": __name__, **answers}
        registry.register_backend(type(name, (kind,), own))

    return know


def test_backends_of_the_host_take_part_beside_those_of_a_device(know: Know) -> None:
    know("a", "cpu")
    know("b", "cpu", "cuda")
    know("c", "cuda")
    assert [backend.name for backend in select_backends((), Target("cpu"))] == ["a", "b"]
    assert [backend.name for backend in select_backends((), Target("cuda"))] == ["a", "b", "c"]
    assert [backend.name for backend in select_backends(("b", "a"), Target("cuda"))] == ["b", "a"]
    with pytest.raises(UnavailableError, match="'c' does not serve target cpu: it serves cuda"):
        select_backends(("a", "c"), Target("cpu"))


def test_variants_of_the_host_and_of_the_target_take_part() -> None:
    on_host, on_device = (Variant(device=device) for device in ("cpu", "cuda"))
    assert takes_part(on_host, Target("cuda"), 0.0)
    assert takes_part(on_device, Target("cuda"), 0.0)
    assert takes_part(on_host, Target("cpu"), 0.0)
    assert not takes_part(on_device, Target("cpu"), 0.0)


@pytest.mark.parametrize("names", [(), ("a", "b", "c")])
def test_where_nobody_runs_on_the_device_each_says_why_and_the_line_what_to_run(
    know: Know, names: tuple[str, ...]
) -> None:
    know("a", "cpu")
    know("b", "cpu", "cuda", why="no kernels for compute capability 7.0")
    know("c", "cpu")
    with pytest.raises(UnavailableError) as error:
        select_backends(names, Target("cuda"))
    assert str(error.value) == (
        "target cuda: no backend runs on it here (a, c: no variant for cuda; b: no kernels for compute "
        "capability 7.0); "
        "mend one of these, or use a CPU configuration such as configs/resnet_cpu.yaml"
    )


def test_backends_that_are_not_installed_are_among_the_reasons(know: Know) -> None:
    know("a", "cpu")
    know("b", "cuda", missing="not installed: pip install b")
    with pytest.raises(UnavailableError, match=r"\(a: no variant for cuda; b: not installed: pip install b\)"):
        select_backends((), Target("cuda"))


def test_a_backend_that_stands_on_others_needs_threads_and_runs_no_whole_model(know: Know) -> None:
    know("a", "cpu")
    know("pair", "cpu", kind=OnOthers)
    assert [backend.name for backend in select_backends((), Target("cpu", 1))] == ["a"]
    assert [backend.name for backend in select_backends((), Target("cpu", 2))] == ["a", "pair"]
    assert whole_variants(registry.get_backend("pair"), Target(), 1.0) == ()
    for names, threads, message in (
        (("a", "pair"), 1, "backend 'pair' needs 2 threads or more"),
        (("pair",), 2, "pair runs no whole model: add a library"),
    ):
        with pytest.raises(ConfigError, match=message) as error:
            select_backends(names, Target("cpu", threads))
        assert len(str(error.value).splitlines()) == 1
