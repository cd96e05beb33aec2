"""Every file of a run directory and an artifact, damaged in every way: it still works, or one line names the file."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.accuracy.samples import read_samples
from collage_evo.answer.baselines import read_baselines
from collage_evo.backends.checks import lacks_instructions
from collage_evo.backends.variants import Arithmetic
from collage_evo.cli import main
from collage_evo.config import parse_config
from collage_evo.costs.saved_costs import COSTS
from collage_evo.errors import CollageError
from collage_evo.fitness.references import read_recorded, read_references
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.files import read_model
from collage_evo.precision.quantise.ranges import read_ranges
from collage_evo.report.finished import read_finished
from collage_evo.report.progress import LineReporter
from collage_evo.run.budget import SEARCH_SECONDS, SEARCH_SKIPPED
from collage_evo.run.context import METRIC
from collage_evo.run.directory import kind_of_run, reopen_run, start_run
from collage_evo.run.objectives import SHARES
from collage_evo.run.open import LIMITS
from collage_evo.run.plan import PLAN
from collage_evo.run.profiles import run_profiles
from collage_evo.run.samples import model_file, saved_shapes
from collage_evo.run.stages.baselines import ON_NORMALISED
from collage_evo.run.stages.costs import TUNING
from collage_evo.run.stages.matches import MATCHES
from collage_evo.run.stages.mixtures import MIXTURES
from collage_evo.run.stages.model import BEGUN, NORMALISED
from collage_evo.run.stages.samples import SAMPLES
from collage_evo.run.stages.threads import THREADS
from collage_evo.run.store import Store
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.manifest import computes_exactly
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.checkpoint import Fingerprint
from tests.support.models import chain
from tests.support.quick import QUICK, nested

LEAVES = 3
"""Values of a file that are replaced, one at a time."""
DEEP = b'{"a":' * 5000
"""Deeper than readers of JSON and YAML descend."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything that a run may leave: int8 takes part, and any batch is taken."""
    folder = tmp_path_factory.mktemp("damage")
    model = chain(1)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, folder / "tiny.onnx")
    given = nested({**QUICK, "accuracy.budget": 0.05, "accuracy.int8_without_data": True})
    given["cache"], given["model"] = {"dir": str(folder / "cache")}, {"source": str(folder / "tiny.onnx")}
    given["search"] |= {"seconds": None, "evaluations": 4, "ga": {"population": 2, "offspring": 1}}
    run_profiles(start_run(folder / "run", parse_config(given, (), "test")), folder / "run", LineReporter())
    return folder / "run"


@dataclass(frozen=True)
class Damaged:
    """A file that is damaged, of a run; and what it held."""

    run: Path
    path: Path
    sound: bytes


def costs(at: Damaged) -> object:
    graph = build_graph(read_model(at.run / "work" / "normalised.onnx"))
    saved = Store(at.run).get(COSTS)
    return saved and saved.costs(graph, {})


def search(at: Damaged) -> object:
    told = json.loads(at.sound)["body"]["fingerprint"]
    return checkpoint.load(at.run, Fingerprint(**{**told, "backends": tuple(told["backends"])}))


def artifact(at: Damaged) -> None:
    place = next(parent for parent in at.path.parents if parent.suffix == ".collage")
    computes_exactly(place)
    load_artifact(place).close()


READERS: Mapping[str, Callable[[Damaged], object]] = {
    "config.yaml": lambda at: reopen_run(at.run),
    "run.json": lambda at: kind_of_run(at.run),
    "profiles.json": lambda at: saved_shapes(reopen_run(at.run), at.run, model_file(reopen_run(at.run))),
    "baselines.json": lambda at: read_baselines(at.path, at.run / "baselines"),
    "fallbacks.json": lambda at: read_baselines(at.path, at.run / "fallbacks"),
    "result.json": lambda at: read_finished(at.run),
    "checkpoint*.json": search,
    "work/model.json": lambda at: Store(at.run).get(BEGUN),
    "work/metric.json": lambda at: Store(at.run).get(METRIC),
    "work/limits.json": lambda at: Store(at.run).get(LIMITS),
    "work/early_mixtures.json": lambda at: Store(at.run).get(MIXTURES),
    "work/search_skipped.json": lambda at: Store(at.run).get(SEARCH_SKIPPED),
    "work/search_seconds.json": lambda at: Store(at.run).get(SEARCH_SECONDS),
    "work/samples.json": lambda at: Store(at.run).get(SAMPLES),
    "work/reference.npz": lambda at: read_references(at.path),
    "work/edges.npz": lambda at: read_references(at.path),
    "work/recorded.npz": lambda at: read_recorded(at.path),
    "work/calibration.npz": lambda at: read_samples(at.path),
    "work/search.npz": lambda at: read_samples(at.path),
    "work/held_out.npz": lambda at: read_samples(at.path),
    "work/judged_last.npz": lambda at: read_samples(at.path),
    "work/normalised.json": lambda at: Store(at.run).get(NORMALISED),
    "work/matches.json": lambda at: Store(at.run).get(MATCHES),
    "work/ranges.json": lambda at: read_ranges(at.path),
    SHARES.path: lambda at: Store(at.run).get(SHARES),
    "work/costs.json": costs,
    "work/*.onnx": lambda at: read_model(at.path),
    "*.collage/manifest.json": artifact,
    "*.collage/*/border.json": artifact,
    "*.collage/*/*.onnx": artifact,
}
"""Who reads which file."""
UNREAD = {"report.html", "annotated.onnx"}


def flipped(content: bytes, draw: random.Random) -> Iterator[bytes]:
    for _ in range(LEAVES):
        spoiled = bytearray(content)
        spoiled[draw.randrange(len(spoiled))] ^= 1 << draw.randrange(8)
        yield bytes(spoiled)


def replaced(value: Any) -> Callable[[bytes, random.Random], Iterator[bytes]]:
    """JSON with one value after another, of some all over it, replaced."""

    def make(content: bytes, draw: random.Random) -> Iterator[bytes]:
        try:
            found = list(_places(json.loads(content)))
        except ValueError:
            yield json.dumps(value).encode()
            return
        for place in draw.sample(found, min(LEAVES, len(found))):
            data = inner = json.loads(content)
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            yield json.dumps(data).encode()

    return make


def _places(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*place, key)
        yield from _places(value, (*place, key))


FOLDER, PIPE, NOTHING = b"a folder", b"a pipe", b"nothing"
"""What stands in the file's place."""
DAMAGES: Mapping[str, Callable[[bytes, random.Random], Iterator[bytes]]] = {
    "empty": lambda content, draw: iter([b""]),
    "cut": lambda content, draw: iter([content[: len(content) // 2]]),
    "flipped": flipped,
    "random": lambda content, draw: iter([draw.randbytes(len(content))]),
    "another type": lambda content, draw: iter([b"[1, 2]", b'"text"', b"7", b"null", b'{"schema": 4}']),
    "null": replaced(None),
    "huge": replaced(10**40),
    "deep": lambda content, draw: iter([DEEP]),
    "no UTF-8": lambda content, draw: iter([content[:20] + b"\xff\xfe\x80" + content[20:]]),
    "a folder": lambda content, draw: iter([FOLDER]),
    "a pipe": lambda content, draw: iter([PIPE]),
    "missing": lambda content, draw: iter([NOTHING]),
}


def put(path: Path, content: bytes) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)  # of an artifact: not the other names of the same file
    if content == FOLDER:
        path.mkdir()
    elif content == PIPE:
        os.mkfifo(path)
    elif content != NOTHING:
        path.write_bytes(content)


def digests(run: Path, but: Path) -> dict[Path, str]:
    others = (path for path in run.rglob("*") if path.is_file() and not path.name.startswith(but.name))
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in others}


def names(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}


def test_who_reads_which_file_is_known_of_every_one(finished: Path) -> None:
    found = names(finished)
    assert found == UNREAD | {name for name in found if any(fnmatch(name, pattern) for pattern in READERS)}
    left = {pattern for pattern in READERS if any(fnmatch(name, pattern) for name in found)}
    assert READERS.keys() - left == ({SHARES.path} if lacks_instructions(Arithmetic.INT8) else set())


@pytest.mark.parametrize("pattern", READERS)
def test_a_damaged_file_is_named_in_one_line_or_does_no_harm(finished: Path, tmp_path: Path, pattern: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    for name in sorted(name for name in names(finished) if fnmatch(name, pattern)):
        path, content = run / name, (finished / name).read_bytes()
        before = digests(run, but=path)
        for damage, spoil in DAMAGES.items():
            for spoiled in spoil(content, random.Random(name)):
                put(path, spoiled)
                try:
                    READERS[pattern](Damaged(run, path, content))
                except CollageError as error:
                    told = str(error)
                    assert name.partition("/")[0] in told, (damage, told)
                    assert "\n" not in told, damage
            assert digests(run, but=path) == before, damage
            put(path, content)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("best.collage/manifest.json", "exec run/best.collage"),
        ("best.collage/manifest.json", "inspect run/best.collage"),
        ("config.yaml", "resume run"),
        ("run.json", "resume run"),
        ("result.json", "explain run --region 0"),
        ("work/original.onnx", "export run --onnx out.onnx"),
    ],
)
def test_a_command_ends_with_that_line(
    finished: Path, tmp_path: Path, name: str, command: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    put(tmp_path / "run" / name, DEEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["collage_evo", *command.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert Path(name).name in capfd.readouterr().err.strip().splitlines()[-1]


def test_records_are_stored_where_the_plan_says(finished: Path) -> None:
    """A run on one thread, without trials for kernels, of a small model, has three records less."""
    stored = {row.stored.path for row in PLAN.rows if row.stored}
    missing = {name for name in stored if not (finished / name).exists()}
    assert missing == {one.path for one in (THREADS, ON_NORMALISED, TUNING)}
