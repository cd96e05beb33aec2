"""Bad input as a new user meets it: one line that says what to do, and the exit code."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import onnx
import pytest

from collage_evo.cli.app import STANDS_FOR, in_options
from collage_evo.hardware import accelerator
from collage_evo.models.builder import Builder
from tests.cli.commands import Here, collage, refused
from tests.support.models import tiny_convnet
from tests.support.quick import QUICK, options

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that cannot be used."""
    folder = tmp_path_factory.mktemp("bad")
    model = tiny_convnet()
    onnx.save(model, folder / "tiny.onnx")
    (folder / "garbage.onnx").write_bytes(b"\x00\xffnot a model" * 50)
    (folder / "truncated.onnx").write_bytes(model.SerializeToString()[: model.ByteSize() // 2])
    onnx.save(
        tiny_convnet(), folder / "external.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    (folder / "weights.bin").unlink()
    for name, op_type, shape in (("dynamic", "Relu", ("batch", "width")), ("unknown_op", "NoSuchOperator", (1, 4))):
        b = Builder(name)
        onnx.save(b.model(b.op(op_type, b.input("x", shape), output="y")), folder / f"{name}.onnx")
    (folder / "quality.py").write_text("def samples():\n    return []\n")
    (folder / "empty").mkdir()
    (folder / "damaged").mkdir()
    (folder / "damaged" / "config.yaml").write_text("model: [unclosed")
    return folder


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "absent.onnx"), ("absent.onnx",)),
        (("run", "absent.yaml"), ("no such file", "absent.yaml")),
        (("run", "garbage.onnx"), ("not an ONNX",)),
        (("run", "truncated.onnx"), ("truncated.onnx",)),
        (("run", "external.onnx"), ("weights.bin",)),
        (("run", "dynamic.onnx"), ("--shapes 'x:", "model.shapes")),
        (("run", "tiny.onnx", "--data", "quality.py"), ("quality.py:samples",)),
        (("run", "tiny.onnx", "--effort", "fast"), ("quick", "normal", "thorough")),
        (("run", "tiny.onnx", "--threads", "0"), ("--threads",)),
        (("run", "tiny.onnx", "--for", "avx9"), ("no processor avx9", "avx2, avx512, avx512_bf16")),
        (("pack", "--to", "a.collage"), ("ARTIFACT...", "--help")),
        (("pack", "runs"), ("--to", "--help")),
        (("export", "runs", "--onnx", "a.onnx", "--form", "onnxruntime"), ("--form onnxruntime goes with --to",)),
        (("run", "tiny.onnx", "--precision", "exact", "--budget", "0.1"), ("set only one of the two",)),
        (("run", "tiny.onnx", "--resume", "--overwrite"), ("give only one of them",)),
        (("sweep", "tiny.onnx", "--resume", "--overwrite"), ("give only one of them",)),
        (("tune", "tiny.onnx", "--resume", "--overwrite"), ("give only one of them",)),
        (("tune", "tiny.onnx", "--out", "a", "-s", "output.dir=b"), ("--out and -s output.dir",)),
        (("config", "tiny.onnx", "--schema"), ("either --schema or a configuration",)),
        (("config", "-s", "target.threads=2"), ("either --schema or a configuration",)),
        (("explain", "tiny.onnx", "--node", "a"), ("tiny.onnx is no run directory", "run MODEL, then")),
        (("explain", "builtin:resnet50", "--node", "a"), ("no run directory",)),
        (("export", "runs", "--to", "a", "--onnx", "b"), ("--to", "--onnx")),
        (("run", "unknown_op.onnx", "-s", "backends.use=[onnxruntime]"), ("NoSuchOperator",)),
        (("run", "builtin:resnet51"), ("resnet50",)),
        (("run", "tiny.onnx", "-s", "search.secnds=5"), ("search.seconds",)),
        (("run", "tiny.onnx", "-s", "search.ga.popluation=5"), ("search.ga.population",)),
        (("run", "tiny.onnx", "-s", "backends.use=[openvinno]"), ("openvino",)),
        (("run", "tiny.onnx", "-s", "target.threads=1000"), ("1000 threads",)),
        (("resume", "nowhere"), ("no run directory",)),
        (("resume", "empty"), ("not a run",)),
        (("resume", "damaged"), ("damaged",)),
        (("exec", "nowhere.collage"), ("no artifact",)),
        (("run", "--nosuch"), ("--nosuch", "--help")),
        (("conformance",), ("BACKEND",)),
        (("conformance", "onnxruntme"), ("did you mean onnxruntime",)),
        ((), ("--help",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input(bad: Path, args: tuple[str, ...], words: tuple[str, ...], here: Here) -> None:
    refused(here(*args, cwd=bad), *words)


ONE_WORD = [
    (("--effort", "quick"), "effort=normal"),
    (("--time", "60"), "time=30"),
    (("--threads", "1"), "target.threads=2"),
    (("--for", "avx2"), "target.processor=avx512"),
    (("--shapes", "auto"), "model.shapes.x=[1, 4]"),
    (("--shapes", "x: [1, 4]"), "model.sizes=smallest"),
    (("--data", "a.npz"), "data.source=b.npz"),
    (("--budget", "0.1"), "accuracy.budget=0.2"),
    (("--precision", "exact"), "accuracy.budget=0.2"),
    (("--metric", "top1"), "accuracy.metric=top5"),
    (("--batch-invariant",), "accuracy.batch_invariant=false"),
    (("--like", "a"), "search.like=b"),
    (("--out", "a"), "output.dir=b"),
]


@pytest.mark.parametrize(("option", "override"), ONE_WORD)
def test_an_option_and_its_key_are_not_both_given(
    bad: Path, option: tuple[str, ...], override: str, here: Here
) -> None:
    key = override.partition("=")[0]
    refused(here("run", "tiny.onnx", *option, "-s", override, cwd=bad), option[0], f"-s {key} set the same key")


def test_every_option_that_stands_for_a_key_is_tried_with_it() -> None:
    assert {" ".join(option) if option[0] == "--precision" else option[0] for option, _ in ONE_WORD} == {*STANDS_FOR}


def test_what_the_system_refuses_is_one_line_and_leaves_nothing(
    bad: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.onnx").write_bytes((bad / "tiny.onnx").read_bytes())
    (tmp_path / "mine").write_text("years of work")
    quick = options(QUICK)
    refused(here("run", "tiny.onnx", "--out", "mine/run", *quick, cwd=tmp_path), "mine/run: Not a directory")
    cache = ["-s", "cache.dir=mine"]
    refused(here("run", "tiny.onnx", *quick, *cache, cwd=tmp_path), "mine cannot be used: it cannot be made")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    refused(here("run", "tiny.onnx", *quick, "-s", "cache.dir=shared", cwd=tmp_path), "chmod -R go-w", "cache.dir")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    refused(here("run", "tiny.onnx", *quick, cwd=tmp_path), "runs/tiny/config.yaml: No space left", "make room")
    assert (tmp_path / "mine").read_text() == "years of work"


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here")
@pytest.mark.parametrize("source", ["tiny.onnx", str(CONFIGS / "resnet_v100.yaml"), str(CONFIGS / "bert_cuda.yaml")])
def test_a_device_that_is_not_there_ends_with_3(bad: Path, source: str) -> None:
    done = collage("run", source, "-s", "target.device=cuda", cwd=bad)
    refused(done, "no CUDA device here (the NVIDIA driver", "configs/resnet_cpu.yaml", code=3)
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_device_whose_plug_in_is_not_installed_ends_with_3(
    bad: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "entry_points", lambda **_: ())
    accelerator.accelerator_of.cache_clear()
    done = here("run", "tiny.onnx", "-s", "target.device=cuda", cwd=bad)
    accelerator.accelerator_of.cache_clear()
    refused(done, "the plug-in for cuda is not installed: make gpu", "configs/resnet_cpu.yaml", code=3)


@pytest.mark.parametrize(
    ("text", "typed", "told"),
    [
        ("data.source f.py:g raised KeyError", "--data f.py:g", "--data f.py:g raised KeyError"),
        ("m.onnx: accuracy.budget: no budget", "--budget=x", "--budget: no budget"),
        ("accuracy.budget: no budget", "--precision exact", "--precision exact: no budget"),
        ("accuracy.budget: no budget", "-s accuracy.budget=x", "accuracy.budget: no budget"),
        ("no sample fits: give others with data.source", "--data x", "no sample fits: give others with data.source"),
        ("time.x is no key", "--time 5", "time.x is no key"),
    ],
)
def test_an_error_names_the_option_that_was_typed_and_not_its_key(text: str, typed: str, told: str) -> None:
    assert in_options(text, typed.split()) == told
