"""Is a placement faster than the libraries that it is made of, than PyTorch, and than simpler ways to place?

    python benchmarks/peers.py peers.json [--models builtin:resnet50 ...] [--threads 1 2] [--budgets 0.02 exact]
        [--device cuda] [--seconds 300] [--folder runs]

The networks of Collage's table and MobileNet v2, batch 1. Each is searched as ``python -m collage_evo run`` does, for
cuda with the settings of ``configs/resnet_v100.yaml``; the budget ``exact`` allows float32 alone. Then take turns,
each in a process of its own, from a caller's arrays to fresh arrays: the best way of each library to run the whole
model, unless it was far behind in the run; PyTorch eagerly and by torch.compile, on a GPU with and without CUDA
graphs and in float16, where it is installed; the greedy partition that the measured costs say is the best; the
dynamic program's placement; the search's best, where a single library is the answer; and the answer, loaded anew.
``reloaded`` is the loop that the run timed, in a fresh process. PyTorch as it comes takes TF32 for convolutions on a
GPU; with ``exact`` it does not.

On several threads each library takes turns on one thread too, if that run lies in the same folder. The *bound* is
the best library's time on all threads over a share of its time on one: what perfect lanes of one thread each would
win.

Rows that are in the file already are kept. With ``--folder`` so are runs, which go on where they stopped. Those of
one network and number of threads share what each single library takes. The tables are Markdown. On a CPU PyTorch is a
rival only: as a backend of the search it would compile for minutes.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from networks import model_source
from peers_report import (
    DP,
    GREEDY,
    ONE_THREAD,
    OTHERS,
    OURS,
    PYTORCH,
    RELOADED,
    SEARCH,
    Row,
    Speedup,
    print_row,
    summary,
    table,
)
from pytorch import ways
from rich.console import Console
from rows import Rows, folder_name
from turns import Rounds, median_ms, ratio, take_turns

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.baselines import Baseline, feasible_baselines, read_baselines
from collage_evo.answer.candidates import feasible_placements
from collage_evo.answer.delivery import Delivery
from collage_evo.backends.registry import device_of
from collage_evo.backends.select import usable_backends
from collage_evo.backends.variants import Arithmetic, engine_name
from collage_evo.config import Config, parse_config, read_config
from collage_evo.files import write_whole
from collage_evo.genome.encoding import decode
from collage_evo.genome.failure import Failure
from collage_evo.genome.greedy import greedy_placement
from collage_evo.genome.space import SearchSpace
from collage_evo.hardware.slots import usable_cores
from collage_evo.hardware.target import CPU, Target
from collage_evo.patterns.match import Placement
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import Result
from collage_evo.run.context import RunContext
from collage_evo.run.evaluate import open_records, planned
from collage_evo.run.records import Records
from collage_evo.run.search import Found, Searched
from collage_evo.run.stages.baselines import Baselines
from collage_evo.search.evolution.origin import Way
from collage_evo_cuda.torch_cuda.requirements import unusable

MODELS = (
    "builtin:bert", "network:dcgan", "network:nasnet_a", "network:resnet3d_50", "network:resnext50_32x4d",
    "builtin:resnet50", "builtin:mobilenet_v2",
)  # fmt: skip
CUDA = Path(__file__).parents[1] / "configs" / "resnet_v100.yaml"
FAR_BEHIND = 2.0
"""A library this many times as slow as the fastest takes no turns: it would not be the best other."""
TORCH = "torch"
USUAL = "usual"
"""A budget: as the configuration has it."""
EXACT = "exact"


def measure(source: str, threads: int, budget: str, options: argparse.Namespace, folder: Path) -> Row:
    """Search one network, then let all take turns."""
    config = settings(source, threads, budget, options)
    if budget == EXACT:
        for other in options.budgets:
            share_baselines(folder.with_name(folder_name(*key_of(source, threads, other, options))), folder)
    with open_records(config, folder, LineReporter()) as records:
        return measured(records, source, budget, options)


def measured(records: Records, source: str, budget: str, options: argparse.Namespace) -> Row:
    """The turns of a network's answer, of each library and of other placements."""
    run, searched, baselines = records[RunContext], planned(records)[Searched], records[Baselines]
    result, config = records.having({Found: searched})[Result], run.config
    libraries = best_ways(feasible_baselines(baselines, run.limits))
    rivals = rival_placements(searched, run.limits, libraries, result)
    artifacts = {name: baseline.artifact for name, baseline in libraries.items()}
    artifacts |= compiled(run, rivals)
    if config.target.threads > 1:
        other = run.directory.with_name(folder_name(*key_of(source, 1, budget, options)))
        single = best_baselines(other, run.limits)
        artifacts |= {f"{name}, {ONE_THREAD}": baseline.artifact for name, baseline in single.items()}
    turns = contest(run, artifacts, records[Delivery].best, exact=run.limits.budget == 0.0, options=options)
    others = [name for name in turns if name in libraries or name.startswith(PYTORCH)]
    return Row(
        model=source,
        device=config.target.device,
        threads=config.target.threads,
        budget=config.accuracy.budget,
        environment={**result.environment, **result.target, "torch": torch_version()},
        answer=result.answer,
        error=result.accuracy.error_search,
        baselines={b.name: b.outcome.latency_ms or b.outcome.reason for b in baselines},
        libraries={name: baseline.name for name, baseline in libraries.items()},
        reported_ms=result.best.median_ms or 0.0,
        times_ms={name: [turn.times_ms for turn in turns[name]] for name in turns},
        speedups={name: speedups(turns, name, others) for name in (OURS, SEARCH) if name in turns},
        where={OURS: ran_where(result), **{name: placed_where(rivals[name]) for name in rivals if name in turns}},
        search=search_figures(searched),
    )


def settings(source: str, threads: int, budget: str, options: argparse.Namespace) -> Config:
    """The configuration of one network's run."""
    cuda = options.device != CPU
    values = {
        "target.device": options.device,
        "target.threads": threads,
        **({} if budget == USUAL else {"accuracy.budget": budget}),
        **({"search.seconds": options.seconds} if options.seconds else {}),
        **({} if cuda else {"backends.use": rivalled(threads)}),
    }
    data = {**(read_config(str(CUDA)) if cuda else {}), "model": {"source": model_source(source)}}
    overrides = [*(f"{key}={value}" for key, value in values.items()), *options.set]
    return parse_config(data, overrides, str(CUDA) if cuda else "benchmark")


def key_of(source: str, threads: int, budget: str, options: argparse.Namespace) -> tuple[object, ...]:
    """Of a row."""
    return source, options.device, threads, settings(source, threads, budget, options).accuracy.budget


def share_baselines(run: Path, other: Path) -> None:
    """Let another run of the same model, on as many threads, use what each single library took in every precision."""
    if (run / "baselines.json").exists() and not (other / "baselines.json").exists():
        shutil.copytree(run / "baselines", other / "baselines", dirs_exist_ok=True)
        write_whole(other / "baselines.json", (run / "baselines.json").read_text())


def best_baselines(folder: Path, limits: Limits) -> dict[str, Baseline]:
    """The best way of each library in a run that was made; none where it was not."""
    baselines = read_baselines(folder / "baselines.json", folder / "baselines")
    return best_ways(feasible_baselines(baselines, limits)) if baselines else {}


def rivalled(threads: int) -> list[str]:
    """The backends of a search on the processor: all but PyTorch, which is a rival."""
    return [backend.name for backend in usable_backends(Target(threads=threads)) if backend.name != TORCH]


def best_ways(baselines: Sequence[Baseline]) -> dict[str, Baseline]:
    """The fastest way of each library to run the whole model, those left out that were far behind."""
    best: dict[str, Baseline] = {}
    for baseline in sorted(baselines, key=_latency_ms):
        best.setdefault(baseline.backend, baseline)
    fastest = min(map(_latency_ms, best.values()))
    return {name: baseline for name, baseline in best.items() if _latency_ms(baseline) <= FAR_BEHIND * fastest}


def _latency_ms(baseline: Baseline) -> float:
    assert baseline.outcome.latency_ms is not None
    return baseline.outcome.latency_ms


def rival_placements(
    searched: Searched, limits: Limits, libraries: Mapping[str, Baseline], result: Result
) -> dict[str, Placement]:
    """What the answer is compared with. The dynamic program's is that of its covers that keeps to ``limits`` and was
    predicted to be the fastest, among those that were measured and ran.
    """
    space, evaluated = searched.costs.space, searched.record.evaluated
    ran = {key: decode(one.genome, space) for key, one in evaluated.items() if one.outcome.ok}
    feasible = feasible_placements(searched.tried, ran.values(), limits)
    ways = Way.DYNAMIC_PROGRAM, Way.FRONT_COVER
    covers = [placement for placement in feasible if evaluated[placement.key].kind.way in ways]
    placements = {GREEDY: best_greedy(space, libraries)}
    if covers:
        placements[DP] = min(covers, key=lambda placement: evaluated[placement.key].predicted_ms)
    raced = [point for point in result.front if point.raced and point.key]
    if raced and result.answer != "placement":
        placements[SEARCH] = ran[min(raced, key=lambda point: point.latency_ms).key]
    return placements


def best_greedy(space: SearchSpace, libraries: Mapping[str, Baseline]) -> Placement:
    """Of the greedy partitions that put one library first and the others by their speed alone, each in its best way
    to run the whole model, the one that the measured costs say is the fastest.
    """
    engines = [(baseline.backend, baseline.variant) for baseline in libraries.values()]
    orders = [[first, *(engine for engine in engines if engine != first)] for first in engines]
    return min((greedy_placement(space, order) for order in orders), key=space.predict)


def compiled(run: RunContext, placements: Mapping[str, Placement]) -> dict[str, Path]:
    """Artifacts of placements, checked against the reference; one that fails is left out, and said."""
    artifacts: dict[str, Path] = {}
    for name, written in run.machine.write(placements, run.work).items():
        if isinstance(written, Failure):
            print(f"{name} is left out: {written}", flush=True)
            continue
        opened, _ = run.machine.check(written)
        if isinstance(opened, Failure):
            print(f"{name} is left out: {opened}", flush=True)
        else:
            artifacts[name] = written
    return artifacts


def contest(
    run: RunContext, artifacts: Mapping[str, Path], answer: Path, exact: bool, options: argparse.Namespace
) -> Rounds:
    """The turns of all sides, those of PyTorch only if they start and are right."""
    sides = {name: ["session", str(artifact)] for name, artifact in artifacts.items()}
    files = [str(run.files.original), str(run.files.reference), str(answer)]
    torch = {
        f"{PYTORCH}, {way}": ["pytorch", way, "yes" if exact else "no", *files]
        for way in torch_ways(options.device, exact)
    }  # fmt: skip
    sides |= {**torch, OURS: ["session", str(answer)], RELOADED: ["execute", str(answer)]}
    # On a GPU each side has one busy thread of Python, and all cores while it loads and compiles.
    cores = run.machine.first_cores if options.device == CPU else usable_cores()
    return take_turns(sides, cores, options.rounds, options.turn, device=options.device, may_die=list(torch))


def torch_ways(device: str, exact: bool) -> tuple[str, ...]:
    """In which ways PyTorch takes part; where in none, the reason is said."""
    version = torch_version()
    reason = "" if version else "it is not installed"
    if version and device != CPU:
        reason = unusable(Arithmetic.FLOAT32)
    if reason:
        print(f"{PYTORCH} is left out: {reason}", flush=True)
    return () if reason else ways(device, exact)


def torch_version() -> str:
    """Of the installed PyTorch; empty where there is none."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def speedups(turns: Rounds, side: str, others: Sequence[str]) -> dict[str, Speedup]:
    """Of ``side`` over the fastest of ``others``, and over the placements made in simpler ways."""
    over = {OTHERS: min(others, key=lambda name: median_ms(turns, name))}
    over |= {name: name for name in (GREEDY, DP) if name in turns}
    ratios = {what: (name, ratio(turns, name, side)) for what, name in over.items()}
    return {what: (name, ratio.estimate, ratio.low, ratio.high) for what, (name, ratio) in ratios.items()}


def ran_where(result: Result) -> dict[str, int]:
    """Nodes of the answer by engine and device."""
    nodes: Counter[str] = Counter()
    for region in result.placement:
        nodes[f"{engine_name(region.backend, region.variant)} on {region.device}"] += len(region.nodes)
    return dict(nodes)


def placed_where(placement: Placement) -> dict[str, int]:
    """Nodes of a placement by engine and device."""
    nodes: Counter[str] = Counter()
    for region in placement.regions:
        nodes[f"{engine_name(*region.engine)} on {device_of(*region.engine)}"] += region.nodes.bit_count()
    return dict(nodes)


def search_figures(searched: Searched) -> dict[str, float]:
    """What the search took."""
    record = searched.record
    ran, state = sum(outcome.n > 0 for outcome in record.outcomes.values()), record.state
    return {
        "seconds": state.seconds,
        "evaluations": state.evaluations,
        "measured": ran,
        "measured_a_minute": 60 * ran / state.seconds,
        "seconds_to_best": state.best_seconds,
        "evaluating_share": sum(record["evaluating"] for record in state.log) / state.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--device", choices=(CPU, "cuda"), default=CPU)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, help="of each search (default: as a run has it)")
    parser.add_argument("--budgets", nargs="+", default=[USUAL], help="errors of the answer; exact: float32 alone")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side")
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of a turn")
    parser.add_argument("--folder", type=Path, help="keeps the runs")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="as for the tool")
    options = parser.parse_args()
    rows = Rows(options.output, Row)
    with tempfile.TemporaryDirectory() as work:
        folder = options.folder or Path(work)
        for threads in options.threads:
            tables: dict[str, list[Row]] = {}
            for source, budget in itertools.product(options.models, options.budgets):
                key = key_of(source, threads, budget, options)
                row = rows.get(key, folder, partial(measure, source, threads, budget, options))
                if row is not None:
                    print_row(row)
                    tables.setdefault(budget, []).append(row)
            for mine in tables.values():
                print(f"\n{options.device}, threads {threads}, budget {mine[0].budget}")
                Console(width=400).print(table(mine))  # whatever the terminal's width
                print(summary(mine), flush=True)


if __name__ == "__main__":
    main()
