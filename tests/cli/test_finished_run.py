"""What a run leaves, and the commands that take it: nothing of it is overwritten."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import collage_evo
from collage_evo.costs.saved_costs import COSTS
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.files import read_model
from collage_evo.hardware.slots import acquire_slot, usable_cores
from collage_evo.report.result import SCHEMA
from collage_evo.run.store import Store
from tests.cli.commands import Here, collage, refused
from tests.export.runs import gives_the_same
from tests.support.models import tiny_convnet
from tests.support.quick import QUICK, options
from tests.support.typed import not_none

pytestmark = pytest.mark.slow

BUDGET = 0.02
FAST = options({**QUICK, "accuracy.budget": BUDGET, "search.evaluations": 6})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny.onnx and a finished run of it in run/, made through the command line."""
    folder = tmp_path_factory.mktemp("cli")
    onnx.save(tiny_convnet(), folder / "tiny.onnx")
    done = collage("run", "tiny.onnx", "--quiet", "--out", "run", *FAST, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def largest_error(result: Mapping[str, Any], exact: float) -> float:
    """Of the answer: ``exact`` in float32; where some of it is in int8, about its budget, which is of all samples."""
    return 2 * BUDGET if any(region["int8"] for region in result["placement"]) else exact


def test_a_run_leaves_everything_the_contract_names(finished: Path) -> None:
    run = finished / "run"
    result = json.loads((run / "result.json").read_text())
    assert result["schema"] == SCHEMA
    assert result["numerics"]["max_relative_error"] <= largest_error(result, result["numerics"]["tolerance"])
    assert result["speedup_over_best_single"]["estimate"] >= 1.0
    assert result["search"]["evaluations"] >= 1
    nodes = [name for region in result["placement"] for name in region["nodes"]]
    assert len(nodes) == len(set(nodes)) > 0
    assert {row["name"] for row in result["serving"]} == {"onnxruntime", "onnxruntime/nchw", "best"}
    assert all(row["disk_bytes"] > 0 for row in result["serving"])
    raced = {row["name"]: row for row in result["serving"] if row["peak_bytes"]}  # who is far behind does not
    assert "best" in raced
    assert all(row["load_ms"] > 0 for row in raced.values())
    assert set(nodes) <= {node.name for node in tiny_convnet().graph.node}
    assert (run / "config.yaml").is_file()
    assert (run / "checkpoint.json").is_file()
    assert "<svg" in (run / "report.html").read_text()


def test_the_artifact_runs_in_a_fresh_process_and_is_right(finished: Path) -> None:
    bound = largest_error(json.loads((finished / "run" / "result.json").read_text()), 1e-4)
    code = (
        "import collage_evo, numpy as np, onnx, sys\n"
        "from collage_evo.graph.reference.distance import relative_error\n"
        "from collage_evo.graph.reference.reference import reference_outputs\n"
        "session = collage_evo.load('run/best.collage')\n"
        "x = {i.name: np.random.default_rng(7).standard_normal(i.shape).astype('float32')\n"
        "     for i in session.get_inputs()}\n"
        "error = relative_error(session.run(None, x), reference_outputs(onnx.load('tiny.onnx'), x))\n"
        f"sys.exit(0 if error.relative < {bound} else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=finished, timeout=120).returncode == 0


def test_what_takes_an_artifact_takes_the_directory_of_a_run_too(finished: Path, here: Here) -> None:
    for place in ("run/best.collage", "run"):
        report = json.loads(here("exec", place, "--json", "--repeat", 3, cwd=finished).stdout)
        assert report["median_ms"] > 0
        assert report["outputs"]
        with collage_evo.load(finished / place) as session:
            assert session.get_inputs()
        assert "region 0: onnxruntime" in here("inspect", place, cwd=finished).stdout
        assert json.loads(here("inspect", place, "--json", cwd=finished).stdout)["profiles"]
    refused(here("exec", ".", cwd=finished), "not an artifact")


def test_explain_takes_the_names_and_the_regions_that_a_run_reports(finished: Path, here: Here) -> None:
    region = json.loads((finished / "run" / "result.json").read_text())["placement"][0]
    assert "Backends that can run it" in here("explain", "run", "--node", region["nodes"][0], cwd=finished).stdout
    assert "region 0: " in here("explain", "run", "--region", 0, cwd=finished).stdout
    assert "slow_match: given up: a match that takes " in here("explain", "run", "--pruning", cwd=finished).stdout
    refused(here("explain", "run", cwd=finished), "--node", "--region")
    refused(here("explain", "run", "--node", "a", "--region", 0, cwd=finished), "--node", "--region")


def test_export_writes_a_model_that_says_who_runs_each_node(finished: Path, here: Here) -> None:
    assert "see them in Netron" in here("export", "run", "--onnx", "out.onnx", cwd=finished).stdout
    nodes = onnx.load(finished / "out.onnx").graph.node
    assert all("onnxruntime" in {prop.value for prop in node.metadata_props} for node in nodes)
    refused(here("export", "run", "--onnx", "out.onnx", cwd=finished), "exists already")
    assert (finished / "run" / "annotated.onnx").read_bytes() == (finished / "out.onnx").read_bytes()
    assert "run/annotated.onnx" in (finished / "run" / "report.html").read_text()


def test_exec_writes_a_timeline_beside_what_it_prints(finished: Path, here: Here) -> None:
    done = here("exec", "run", "--profile", "trace.json", "--repeat", 2, cwd=finished)
    assert "region 0 onnxruntime/" in done.stdout
    assert "trace.json" in done.stderr
    events = json.loads((finished / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["run"] for event in events if event["ph"] == "X"} == {0, 1}
    assert any("Conv" in event["name"] for event in events)


def test_export_to_a_folder_leaves_files_that_check_themselves(finished: Path, here: Here) -> None:
    assert gives_the_same(here("export", "run", "--to", "plain", cwd=finished).stdout)
    assert (finished / "plain" / "README.md").exists()
    refused(here("export", "run", "--to", "plain", cwd=finished), "exists already")
    refused(here("export", "run", cwd=finished), "--to", "--onnx")
    assert gives_the_same(here("export", "run", "--to", "model", "--form", "onnxruntime", cwd=finished).stdout)
    assert [node.op_type for node in onnx.load(finished / "model" / "model.onnx").graph.node] == ["EPContext"]


def test_a_used_run_directory_is_left_alone(finished: Path, here: Here) -> None:
    before = (finished / "run" / "result.json").read_bytes()
    refused(here("run", "tiny.onnx", "--out", "run", *FAST, cwd=finished), "--resume", "--overwrite")
    assert (finished / "run" / "result.json").read_bytes() == before


def test_overwrite_removes_only_what_a_run_made(finished: Path, here: Here) -> None:
    run = finished / "again"
    shutil.copytree(finished / "run", run)
    (run / "notes.txt").write_text("mine")
    refused(here("run", "missing.onnx", "--out", "again", "--overwrite", *FAST, cwd=finished), "missing.onnx")
    np.savez(finished / "other.npz", other=np.zeros(3))
    other = ("--data", "other.npz")
    refused(here("run", "tiny.onnx", "--out", "again", "--overwrite", *other, *FAST, cwd=finished), "other.npz")
    assert (run / "result.json").exists(), "a command that is refused removes nothing"
    shutil.copy(finished / "tiny.onnx", run / "model.onnx")
    refused(here("run", "again/model.onnx", "--out", "again", "--overwrite", *FAST, cwd=finished), "contains")
    refused(here("run", finished / "tiny.onnx", "--out", ".", "--overwrite", *FAST, cwd=run), "working directory")
    (run / "sub").mkdir()
    refused(here("run", finished / "tiny.onnx", "--out", "..", "--overwrite", *FAST, cwd=run / "sub"), "working")
    assert (run / "result.json").exists()
    done = here("run", "tiny.onnx", "--out", "again", "--overwrite", *options(QUICK), cwd=finished)
    assert done.returncode == 0, done.stderr
    assert (run / "notes.txt").read_text() == "mine"
    assert not (run / ".replaced").exists()


@pytest.mark.parametrize("name", ["thesis.txt", "config.yaml"])
def test_overwrite_refuses_a_folder_that_is_no_run(finished: Path, here: Here, name: str) -> None:
    mine = finished / f"mine-{name}"
    mine.mkdir()
    (mine / name).write_text("years of work")
    refused(here("run", "tiny.onnx", "--out", mine.name, "--overwrite", *FAST, cwd=finished), "not a run")
    assert (mine / name).read_text() == "years of work"


def test_resume_of_a_run_that_ended_keeps_its_answer_where_nothing_new_is_measured(
    finished: Path, here: Here
) -> None:
    before = (finished / "run" / "result.json").read_bytes()
    (finished / "run" / "report.html").unlink()  # as if killed between the two
    done = here("resume", "run", "--json", cwd=finished)
    assert done.returncode == 0, done.stderr
    assert "the answer stays" in done.stderr
    assert done.stdout.strip() == before.decode().strip()
    assert (finished / "run" / "result.json").read_bytes() == before
    assert "<svg" in (finished / "run" / "report.html").read_text()


def test_resume_goes_on_with_a_larger_budget_only(finished: Path, here: Here) -> None:
    refused(here("resume", "run", "-s", "search.evaluations=2", cwd=finished), "enlarge")
    refused(here("resume", "run", "-s", "target.threads=2", cwd=finished), "enlarge")
    done = here("resume", "run", "-s", "search.evaluations=8", "--json", cwd=finished)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["search"]["evaluations"] >= 6


def test_a_run_that_waits_for_another_says_for_which(finished: Path) -> None:
    other = not_none(acquire_slot((usable_cores(),), "process 42 (runs/other)"))
    command = [sys.executable, "-m", "collage_evo", "run", "tiny.onnx", "--out", "waits", *options(QUICK)]
    with subprocess.Popen(command, cwd=finished, stderr=subprocess.PIPE, text=True) as process:
        line = next((line for line in not_none(process.stderr) if "waiting" in line), "")
        other.release()
        goes_on = any("first answer after" in line for line in not_none(process.stderr))
        process.kill()
    assert "process 42 (runs/other) uses cores" in line
    assert goes_on


def test_an_artifact_with_a_changed_or_missing_file_or_one_outside_is_refused(
    finished: Path, tmp_path: Path, here: Here
) -> None:
    copy = Path(shutil.copytree(finished / "run" / "best.collage", tmp_path / "copy.collage"))
    victim = next(p for p in sorted((copy / "profiles").rglob("*")) if p.is_file())
    content = victim.read_bytes()
    victim.write_bytes(content[:-1] + b"?")
    refused(here("exec", copy, cwd=tmp_path), victim.name)
    victim.unlink()
    refused(here("exec", copy, cwd=tmp_path), victim.name)
    victim.write_bytes(content)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["profiles"][0]["regions"][0]["directory"] = "../../etc"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    refused(here("exec", copy, cwd=tmp_path), "outside the artifact")


def test_explain_names_the_matches_that_the_run_searched_at_the_costs_that_it_had(finished: Path, here: Here) -> None:
    place = finished / "run"
    graph = build_graph(read_model(place / "work" / "normalised.onnx"))
    saved = not_none(Store(place).get(COSTS))
    costs = saved.costs(graph, {})
    timed = dict(zip(costs.space.matches, costs.table.standalone_ms, strict=True))
    for node in graph.nodes:
        told = json.loads(here("explain", "run", "--node", node.name, "--json", cwd=finished).stdout)
        offers = [
            (answer["backend"], offer["variant"], len(offer["operators"]), offer["ms"])
            for answer in told["answers"]
            for offer in answer["offers"]
        ]
        searched = [
            (match.backend, match.variant, match.nodes.bit_count(), ms if math.isfinite(ms) else None)
            for match, ms in timed.items()
            if match.nodes >> node.index & 1
        ]
        assert Counter(offers) == Counter(searched)
    counted = json.loads((place / "result.json").read_text())["cost_model"]["matches"]
    assert counted == Counter(match.backend for match in timed)
