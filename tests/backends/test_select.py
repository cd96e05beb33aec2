"""Who takes part: what is usable here and serves the device that is asked for."""

from collections.abc import Callable
from typing import Any

import pytest

from collage_evo.backends import select as module
from collage_evo.backends.base import Probe
from collage_evo.backends.select import select_backends, whole_variants
from collage_evo.backends.variants import Variant, takes_part
from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.hardware.target import Target


class Fake:
    """A backend with a variant on each of ``devices``; ``why``: why it declines those on cuda."""

    def __init__(self, name: str, devices: tuple[str, ...], why: str = "", missing: str = "") -> None:
        self.name, self.devices, self._why, self._missing = name, devices, why, missing
        self.variants = tuple(Variant(f"on-{device}", device=device) for device in devices)

    def probe(self) -> Probe:
        return Probe(not self._missing, "1", self._missing)

    def declines(self, variant: Variant) -> str:
        return self._why if variant.device == "cuda" else ""


class OnOthers(Fake):
    """A backend that stands on others, for targets of two threads and more."""

    least_threads = 2

    def on_threads(self, threads: int) -> "Fake":
        return self

    def stands_on(self, variant: Variant) -> tuple[str, str]:
        return ("a", "default")


Known = Callable[..., None]


@pytest.fixture
def know(monkeypatch: pytest.MonkeyPatch) -> Known:
    def know(*backends: Fake) -> None:
        known: dict[str, Any] = {backend.name: backend for backend in backends}
        monkeypatch.setattr(module, "get_backend", known.__getitem__)
        monkeypatch.setattr(module, "probe_all", lambda: [(name, known[name].probe()) for name in known])
        monkeypatch.setattr(module, "probe_backend", lambda name: known[name].probe())

    know(Fake("a", ("cpu",)), Fake("b", ("cpu", "cuda")), Fake("c", ("cuda",)))
    return know


@pytest.mark.usefixtures("know")
def test_backends_of_the_host_take_part_beside_those_of_a_device() -> None:
    assert [backend.name for backend in select_backends((), Target("cpu"))] == ["a", "b"]
    assert [backend.name for backend in select_backends((), Target("cuda"))] == ["a", "b", "c"]
    assert [backend.name for backend in select_backends(("b", "a"), Target("cuda"))] == ["b", "a"]


def test_variants_of_the_host_and_of_the_target_take_part() -> None:
    on_host, on_device = (Variant(device=device) for device in ("cpu", "cuda"))
    assert takes_part(on_host, Target("cuda"), 0.0)
    assert takes_part(on_device, Target("cuda"), 0.0)
    assert takes_part(on_host, Target("cpu"), 0.0)
    assert not takes_part(on_device, Target("cpu"), 0.0)


@pytest.mark.usefixtures("know")
def test_one_asked_for_that_does_not_serve_the_device_is_named() -> None:
    with pytest.raises(UnavailableError, match="'c' does not serve target cpu: it serves cuda"):
        select_backends(("a", "c"), Target("cpu"))


@pytest.mark.parametrize("names", [(), ("a", "b", "c")])
def test_where_nobody_runs_on_the_device_each_says_why_and_the_line_what_to_run(
    know: Known, names: tuple[str, ...]
) -> None:
    too_old = Fake("b", ("cpu", "cuda"), "no kernels for compute capability 7.0")
    know(Fake("a", ("cpu",)), too_old, Fake("c", ("cpu",)))
    with pytest.raises(UnavailableError) as error:
        select_backends(names, Target("cuda"))
    assert str(error.value) == (
        "target cuda: no backend runs on it here (a, c: no variant for cuda; b: no kernels for compute "
        "capability 7.0); "
        "mend one of these, or use a CPU configuration such as configs/resnet_cpu.yaml"
    )


def test_backends_that_are_not_installed_are_among_the_reasons(know: Known) -> None:
    know(Fake("a", ("cpu",)), Fake("b", ("cuda",), missing="not installed: pip install b"))
    with pytest.raises(UnavailableError, match=r"\(a: no variant for cuda; b: not installed: pip install b\)"):
        select_backends((), Target("cuda"))


def test_what_needs_more_threads_takes_no_part_and_is_refused_by_name(know: Known) -> None:
    know(Fake("a", ("cpu",)), OnOthers("pair", ("cpu",)))
    assert [backend.name for backend in select_backends((), Target("cpu", 1))] == ["a"]
    assert [backend.name for backend in select_backends((), Target("cpu", 2))] == ["a", "pair"]
    with pytest.raises(ConfigError, match="backend 'pair' needs 2 threads or more") as error:
        select_backends(("a", "pair"), Target("cpu", 1))
    assert len(str(error.value).splitlines()) == 1


def test_what_is_no_library_of_its_own_runs_no_whole_model(know: Known) -> None:
    helper: Any = OnOthers("helper", ("cpu",))
    know(Fake("a", ("cpu",)), helper)
    assert len(select_backends((), Target("cpu", 2))) == 2
    assert whole_variants(helper, Target(), 1.0) == ()
    with pytest.raises(ConfigError, match="helper runs no whole model: add a library"):
        select_backends(("helper",), Target("cpu", 2))
