"""Who is fastest within an error: every way to lower a model's precision, at each of three budgets, on unseen data.

    python benchmarks/precision.py FOLDER [--tasks recogniser resnet50 ...] [--threads 1] [--without ours]

Tasks are trained networks with data whose true answers are known (docs/measuring.md lists them), judged by the drop
of their metric, and networks with random weights, judged by the relative 2-norm error of their worst output.
Contestants are the libraries' own precisions, ONNX Runtime's static quantisation with each way to take ranges, in
ONNX Runtime and in OpenVINO, NNCF (everywhere, at heavy operators only, with SmoothQuant), Olive, Quark, and this
project on one backend and on all. They get the same data, find their answers within ``--wall`` seconds in processes
of their own that may use all cores, and are judged on other data than they got. Then they take turns, each in a
process of its own on the same cores with the same number of threads.

Needs the extra ``benchmarks-precision``; ``--trainer`` names a Python that has it where this one has not. Olive
and Quark want other releases of the same packages: ``--pythons`` names a folder with a virtual environment for each
that is to take part (``PACKAGES`` in ``contest/elsewhere.py`` says what is in it). FOLDER keeps tasks, answers, and
NAME/THREADS.json (with the budgets in its name where some are chosen): raw times, scores and
answers, of which ``precision_table.py`` prints tables, and ``precision_runs.py`` what our own runs say of themselves.
Answers that are there already are kept.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from contest.entrants import Asking, Entrant, content, entrants, run_bounded
from contest.race import Race, write_race
from contest.table import Standing, summary
from contest.task import Task, read_task, without_metric
from contest.tasks import TASKS
from precision_table import shown
from turns import Rounds, SideDied, Turn, take_turns

from collage_evo.hardware.processor import this_machine
from collage_evo.hardware.slots import usable_cores

PACKAGES = ("onnxruntime", "openvino", "nncf", "onnx", "numpy", "pillow")


def main() -> int:
    args = _arguments()
    cores = usable_cores()[: args.threads]
    asking = Asking(args.threads, cores, args.wall, args.without, args.set, args.again, args.pythons)
    about = {"cpu": this_machine().cpu, "threads": args.threads, "versions": _versions()}
    print(f"{about['cpu']}, {args.threads} of {len(usable_cores())} cores, {about['versions']}", flush=True)
    standings: list[Standing] = []
    for name in args.tasks:
        task = _made(args.folder / name / "task", name, args)
        if task is None:
            continue
        folder = task.folder.parent
        answers = list(entrants(task, folder / f"threads_{args.threads}", asking, _log))
        if args.ask:
            continue
        try:
            race = Race(task, answers, _turns(task, answers, asking, args))
        except SideDied as died:
            _log(f"{task.name}: left out, {died}")
            continue
        chosen = "".join(f"_{budget:g}" for budget in args.budgets)
        write_race(folder / f"{args.threads}{chosen}.json", race, about)
        standings += shown(race)
    print(*summary(standings), sep="\n")
    return 0


def _made(folder: Path, name: str, args: argparse.Namespace) -> Task | None:
    """The task, made if it is not there yet; None where it cannot be made."""
    if not (folder / "task.json").exists():
        run_bounded(["-m", "contest.tasks", str(folder), name], args.wall, python=args.trainer)
    if (folder / "task.json").exists():
        task = without_metric(read_task(folder)) if args.error else read_task(folder)
        chosen = replace(task, only=tuple(args.budgets))
        for budget in sorted({*args.budgets}.difference(chosen.budgets)):
            _log(f"{name}: nobody is asked for {budget:g}, its budgets are {', '.join(map(str, task.budgets))}")
        return chosen
    _log(f"{name}: left out, run it by hand: python -m contest.tasks {folder} {name}")
    return None


def _turns(task: Task, answers: Sequence[Entrant], asking: Asking, args: argparse.Namespace) -> Rounds:
    """Turns of all answers by what they are called, but for who died; answers that are the same file run once."""
    keys = {entrant.title: content(entrant.result.answer) for entrant in answers if entrant.result.answer}
    firsts = {key: name for name, key in reversed(keys.items())}
    folders = {entrant.title: entrant.folder for entrant in answers}
    sides = {
        name: ["contestant", str(task.folder), str(folders[name]), str(asking.threads)] for name in firsts.values()
    }
    turns: dict[str, list[Turn]] = {name: [] for name in sides}
    for _ in range(args.starts):  # where a process's memory lies decides for as long as it lives
        more = take_turns(
            {name: sides[name] for name in turns}, asking.cores, args.rounds, args.seconds, may_die=sides
        )
        turns = {name: [*turns[name], *more[name]] for name in more}
    return {name: turns[firsts[key]] for name, key in keys.items() if firsts[key] in turns}


def _versions() -> str:
    versions = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    return ", ".join(versions)


def _log(line: str) -> None:
    print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--without", nargs="+", default=[], help="contestants by the first part of their names")
    parser.add_argument("--budgets", nargs="+", type=float, default=[], help="some of a task's; a metric's: drops")
    parser.add_argument("--error", action="store_true", help="judge tasks with a metric by the relative error too")
    parser.add_argument("--ask", action="store_true", help="get the answers, let nobody take turns")
    parser.add_argument("--again", action="store_true", help="ask who had no answer once more")
    parser.add_argument("--wall", type=float, default=900, help="bound on the seconds of one answer")
    parser.add_argument("--pythons", type=Path, default=Path(), help="folder with environments of tools")
    parser.add_argument("--starts", type=int, default=3, help="of every contestant's process")
    parser.add_argument("--rounds", type=int, default=5, help="turns after each start")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--trainer", default=sys.executable, help="a Python with the extra, which makes the tasks")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="of our own tool")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
