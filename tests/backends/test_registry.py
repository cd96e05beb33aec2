"""Backends are found by name; one that is not there or broken is told, never raised where it was not asked for."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import onnx
import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.backends import registry
from collage_evo.backends.base import Probe
from collage_evo.backends.checks import probe_distribution
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.fitness.jobs import CostJob, Measured, Setting, WorkFiles
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.hardware.target import Target
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings


class Fake(OnnxRuntimeBackend):
    name = "fake"
    extra = ""

    def probe(self) -> Probe:
        raise RuntimeError("no such driver")


@pytest.fixture(autouse=True)
def _forget():
    yield
    registry._registered.clear()
    registry.get_backend.cache_clear()


def plugin(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Pretend that a distribution is installed with this entry point."""
    found = {**registry._entry_points(), name: EntryPoint(name, value, registry.GROUP)}
    monkeypatch.setattr(registry, "_entry_points", lambda: found)


def test_the_four_backends_are_found_by_entry_point():
    assert {"ncnn", "onnxruntime", "openvino", "tvm"} <= set(registry.backend_names())


def test_a_backend_is_one_object():
    assert registry.get_backend("onnxruntime") is registry.get_backend("onnxruntime")


def test_an_extension_takes_the_name_of_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "extension-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: extension\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(f"[{registry.EXTENSIONS}]\nncnn = {__name__}:Fake\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(registry.get_backend("ncnn"), Fake)


def test_a_misspelt_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean openvino"):
        registry.get_backend("openvno")


def test_an_unknown_name_is_answered_with_the_list():
    with pytest.raises(ConfigError, match=r"there are: .*ncnn, onnxruntime, openvino"):
        registry.get_backend("zzz")


def test_a_registered_backend_is_known():
    registry.register_backend(Fake)
    assert isinstance(registry.get_backend("fake"), Fake)
    assert "fake" in registry.backend_names()


def test_a_name_cannot_be_taken_twice():
    class Thief(Fake):
        name = "ncnn"

    with pytest.raises(ConfigError, match="ncnn"):
        registry.register_backend(Thief)


def test_a_backend_that_no_other_process_can_import_is_refused():
    class Local(Fake):
        name = "local"

    with pytest.raises(ConfigError, match="file of its own"):
        registry.register_backend(Local)
    assert "local" not in registry.backend_names()


def test_a_measuring_process_knows_what_was_registered_beside_the_script(tmp_path, monkeypatch):
    """Nothing but the setting tells it: neither the import path nor an entry point."""
    source = Path(__file__).parents[2] / "examples/numpy_backend/collage_evo_numpy.py"
    (tmp_path / "beside_the_script.py").write_text(source.read_text())
    model = tiny_elementwise()
    onnx.save(model, WorkFiles(tmp_path).normalised)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        registry.register_backend(__import__("beside_the_script").NumpyBackend)
    origins = registry.registered_origins()
    setting = Setting(str(tmp_path), str(tmp_path / "cache"), 10**9, Target(), Limits(1e-3), origins)
    job = CostJob(Region(3, "numpy", "default"), TimingSettings(1, 2, 0.0), 1e9, False)
    with Sandbox(setting, (), 2**33) as sandbox:
        answer = sandbox.call(job, 120)
    assert isinstance(answer, Measured), answer
    assert answer.relative_error < 1e-6


def tiny_elementwise() -> onnx.ModelProto:
    b = Builder("elementwise")
    return b.model(b.op("Tanh", b.op("Relu", b.input("x", (2, 3)))))


def test_a_probe_that_raises_is_a_reason():
    registry.register_backend(Fake)
    probe = dict(registry.probe_all())["fake"]
    assert not probe.available
    assert "no such driver" in probe.reason


@pytest.mark.parametrize("value", ["no_such_module:Backend", "collage_evo.errors:InputError"])
def test_a_broken_plugin_is_a_reason_in_the_list_and_an_error_by_name(monkeypatch, value):
    plugin(monkeypatch, "broken", value)
    probe = dict(registry.probe_all())["broken"]
    assert not probe.available
    assert "broken" in probe.reason
    with pytest.raises(UnavailableError, match="broken"):
        registry.get_backend("broken")


def test_the_survey_tells_where_each_backend_comes_from_and_what_installs_it(monkeypatch):
    registry.register_backend(Fake)
    plugin(monkeypatch, "broken", "no_such_module:Backend")
    found = {entry.name: entry for entry in registry.survey()}
    assert found["onnxruntime"].available
    assert found["onnxruntime"].extra == "onnxruntime"
    assert found["fake"].origin.endswith("test_registry:Fake")
    assert "no such driver" in found["fake"].reason
    assert found["broken"].origin == "no_such_module:Backend"
    assert not found["broken"].available


@pytest.fixture
def nothing_probed():
    """Backends look for their packages anew, here and afterwards."""
    probe_distribution.cache_clear()
    yield
    probe_distribution.cache_clear()


@pytest.mark.parametrize("name", ["ncnn", "onnxruntime", "openvino", "tvm"])
def test_a_missing_package_is_reported_with_the_command_that_installs_it(monkeypatch, nothing_probed, name):
    from importlib import metadata

    def missing(distribution: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(metadata, "distribution", missing)
    probe = registry.get_backend(name).probe()
    assert not probe.available
    assert "pip install" in probe.reason
