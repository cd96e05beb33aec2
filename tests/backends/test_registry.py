"""Backends are found by name; a missing or broken one is a reason in lists, and an error where it is asked for."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.backends import registry
from collage_evo.backends.base import Probe
from collage_evo.backends.checks import probe_distribution
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.registry import (
    EXTENSIONS,
    GROUP,
    backend_names,
    get_backend,
    register_backend,
    registered_origins,
    survey,
)
from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.fitness.jobs import CostJob, Measured, Setting, WorkFiles
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.hardware.target import Target
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from tests.support.faults import declare

pytestmark = pytest.mark.usefixtures("registry_alone")


class Fake(OnnxRuntimeBackend):
    name = "fake"
    extra = ""

    def probe(self) -> Probe:
        raise RuntimeError("no such driver")


class Thief(Fake):
    name = "ncnn"


def test_the_four_backends_are_found_by_entry_point_each_as_one_object() -> None:
    assert {"ncnn", "onnxruntime", "openvino", "tvm"} <= set(backend_names())
    assert get_backend("onnxruntime") is get_backend("onnxruntime")


def test_what_is_installed_on_a_path_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[bool]()
    monkeypatch.setattr(registry, "entry_points", lambda: read.append(True) or importlib.metadata.EntryPoints(()))
    assert backend_names() == backend_names() == ()
    assert len(read) == 1
    monkeypatch.syspath_prepend(tmp_path)
    assert not backend_names()
    assert len(read) == 2


def test_an_extension_takes_the_name_of_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, EXTENSIONS, "ncnn", f"{__name__}:Fake")
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(get_backend("ncnn"), Fake)


@pytest.mark.parametrize(
    ("name", "message"),
    [("openvno", "did you mean openvino"), ("zzz", r"there are: .*ncnn, onnxruntime, openvino")],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_the_list(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_backend(name)


def test_a_registered_backend_is_listed_and_its_probe_that_raises_is_a_reason() -> None:
    register_backend(Fake)
    assert isinstance(get_backend("fake"), Fake)
    (found,) = (entry for entry in survey() if entry.name == "fake")
    assert found.origin.endswith("test_registry:Fake")
    assert (found.available, "no such driver" in found.reason) == (False, True)


def test_a_taken_name_and_a_class_that_no_other_process_can_import_are_refused() -> None:
    class Local(Fake):
        name = "local"

    for backend, message in ((Thief, "ncnn"), (Local, "file of its own")):
        with pytest.raises(ConfigError, match=message):
            register_backend(backend)
    assert "local" not in backend_names()
    assert not isinstance(get_backend("ncnn"), Thief)


def test_a_measuring_process_knows_what_was_registered_beside_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the setting tells it: neither the import path nor an entry point."""
    source = Path(__file__).parents[2] / "examples/numpy_backend/collage_evo_numpy.py"
    (tmp_path / "beside_the_script.py").write_text(source.read_text())
    b = Builder("elementwise")
    onnx.save(b.model(b.op("Tanh", b.op("Relu", b.input("x", (2, 3))))), WorkFiles(tmp_path).normalised)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        register_backend(__import__("beside_the_script").NumpyBackend)
    setting = Setting(str(tmp_path), str(tmp_path / "cache"), 10**9, Target(), Limits(1e-3), registered_origins())
    job = CostJob(Region(3, "numpy", "default"), TimingSettings(1, 2, 0.0), 1e9, False)
    with Sandbox(setting, (), 2**33) as sandbox:
        answer = sandbox.call(job, 120)
    assert isinstance(answer, Measured), answer
    assert answer.relative_error < 1e-6


@pytest.mark.parametrize("value", ["no_such_module:Backend", "collage_evo.errors:InputError"])
def test_a_broken_plugin_is_a_reason_in_the_list_and_an_error_by_name(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path, GROUP, "broken", value)
    monkeypatch.syspath_prepend(tmp_path)
    found = {entry.name: entry for entry in survey()}
    assert (found["broken"].available, found["broken"].origin) == (False, value)
    assert "broken" in found["broken"].reason
    assert (found["onnxruntime"].available, found["onnxruntime"].extra) == (True, "onnxruntime")
    with pytest.raises(UnavailableError, match="broken"):
        get_backend("broken")


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only this package is found; backends look for theirs anew, here and afterwards."""
    find = importlib.metadata.distribution

    def missing(distribution: str) -> importlib.metadata.Distribution:
        if distribution == "collage-evo":
            return find(distribution)
        raise importlib.metadata.PackageNotFoundError(distribution)

    probe_distribution.cache_clear()
    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    yield
    probe_distribution.cache_clear()


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("name", ["ncnn", "onnxruntime", "openvino", "tvm"])
def test_a_missing_package_is_reported_with_the_command_that_installs_it(name: str) -> None:
    probe = get_backend(name).probe()
    assert (probe.available, "pip install" in probe.reason) == (False, True)
    assert "collage-evo[" not in probe.reason, "it is on no index"
