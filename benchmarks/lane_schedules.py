"""How near schedules come to what a machine with many cores allows: simulated, by node times on one core.

    python benchmarks/lane_schedules.py lane_schedules.json [--cores 2 8 64] [--models builtin:squeezenet ...]
        [--runs runs/NAME ...]

Four schedules: one operator after the other on all cores; IOS's dynamic program over stages, block by block
(``lane_stages.py``); and the project's own choice, where its dynamic program takes operators on all cores and lanes
wherever their pattern proposes them, with lanes of one core each, or of several. Each is
divided by the bound, the larger one of the longest path on all cores and the work over the cores.

Times on one core are estimates, or for ``--runs`` what was measured there. The machine: an operator of w ms on one
core takes w * (s + (1 - s) / t) + e * log2(t) on t cores, or less on fewer (``on_cores``). s and e are fitted to six
networks, with which two threads took 1.09 to 1.62 times half of what one did (SqueezeNet, Inception v1, NASNet-A,
MobileNet v2, DenseNet-121, BERT; Xeon). A handoff between lanes and the end of a stage cost the same; Concats and
Splits and layouts at borders cost nothing in any schedule.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
import repository  # noqa: F401
from lane_stages import PRUNING, ios_ms
from rich.console import Console
from rich.table import Table

from collage_evo.backends.lanes.assign import schedule
from collage_evo.backends.lanes.estimate import Charges, node_ms, on_cores
from collage_evo.backends.lanes.patterns import Width, lane_patterns
from collage_evo.backends.lanes.work import Work
from collage_evo.backends.select import exact_arithmetic
from collage_evo.errors import InputError
from collage_evo.fitness.costs.model import Border, CostModel
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.extract import canonical_names, extract
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.load import load_model
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Match
from collage_evo.run.directory import reopen_run
from collage_evo.run.saved_costs import read_costs
from tests.support.branchy import random_net, towers

HANDOFF_MS = 0.01

IDEAL = Charges(call_ms=0.0, handoff_ms=HANDOFF_MS, border_bytes_per_ms=math.inf)

EFFORT = 6_000
"""Of cutting a region, which is done once for each number of lanes: less than where it is done in earnest."""

MODELS = (
    *("builtin:squeezenet", "builtin:inception_v1", "builtin:nasnet_a", "builtin:bert?layers=4"),
    *("towers", "random 1", "random 2", "random 3"),
)


@dataclass(frozen=True)
class Row:
    """One model on one machine; times in ms."""

    model: str
    cores: int
    path_ms: float
    work_ms: float
    serial_ms: float
    ios_ms: float
    ios_stage: int
    one_core_lanes_ms: float
    lanes_ms: float
    exact: bool

    @property
    def bound_ms(self) -> float:
        """No schedule takes less."""
        return max(self.path_ms, self.work_ms / self.cores)


@dataclass(frozen=True)
class Machine:
    """``cores`` is a power of two."""

    cores: int

    @property
    def widths(self) -> list[int]:
        """Numbers of cores that an operator may be given."""
        return [1 << k for k in range(self.cores.bit_length())]

    def op_ms(self, ms: float) -> list[float]:
        """What takes ``ms`` on one core: its ms on as many as each of ``widths``, or on fewer where that is less."""
        return [on_cores(ms, width) for width in self.widths]


def model_graph(name: str) -> Graph:
    """The graph of a built-in model, of a two-tower recommender, or of a random one by its seed."""
    if name == "towers":
        return build_graph(towers(width=1024, depth=4))
    if name.startswith("random"):
        return build_graph(random_net(random.Random(int(name.split()[1])), 60, width=4))
    return build_graph(normalise(load_model(name).original))


def run_graph(run: Path) -> tuple[Graph, list[float]]:
    """The graph that a run on one thread searched, and its nodes' ms: the fastest float32 backend's, else estimates.

    Raises:
        InputError: the run was for several threads, or measured no costs.
    """
    if reopen_run(run).target.threads != 1:
        raise InputError(f"{run} was for several threads: give a run with target.threads=1")
    graph = build_graph(onnx.load(run / "work" / "normalised.onnx"))
    costs = read_costs(run / "work" / "costs.json", None, graph, {})
    if costs is None:
        raise InputError(f"{run} was not searched: give a run that was")
    known: dict[int, float] = {}
    for match, ms in zip(costs.space.matches, costs.space.cost.match_ms, strict=True):
        if exact_arithmetic(match) and math.isfinite(ms) and match.nodes.bit_count() == 1:
            index = match.nodes.bit_length() - 1
            known[index] = min(ms, known.get(index, math.inf))
    return graph, [known.get(index, ms) for index, ms in enumerate(node_ms(graph))]


def op_table(graph: Graph, times: Sequence[float], machine: Machine) -> list[list[float]]:
    """For each node its ms by :attr:`Machine.widths`, from those on one core; 0 for Concats and Splits."""
    table = []
    for node, ms in zip(graph.nodes, times, strict=True):
        free = node.op_type in ("Concat", "Split")
        table.append([0.0] * len(machine.widths) if free else machine.op_ms(ms))
    return table


def cut_out(graph: Graph, nodes: NodeSet, table: Sequence[list[float]]) -> tuple[Graph, list[list[float]]]:
    """``nodes`` as a graph of its own, with their rows of ``table``."""
    names = canonical_names(graph, nodes)
    rows = {names[graph.nodes[index].outputs[0]]: table[index] for index in members(nodes)}
    region = build_graph(extract(graph, nodes))
    return region, [rows[node.outputs[0]] for node in region.nodes]


def path_ms(graph: Graph, ms: Sequence[float]) -> float:
    """The longest path."""
    until: list[float] = []
    for index, own in enumerate(ms):
        until.append(own + max((until[other] for other in members(graph.pred[index])), default=0.0))
    return max(until)


def chains(work: Work) -> tuple[NodeSet, ...]:
    """Longest stretches on which nothing forks or joins."""
    found: dict[int, NodeSet] = {}
    first: dict[int, int] = {}
    for index in range(len(work.ms)):
        before = work.before[index]
        alone = len(before) == 1 and len(work.after[before[0]]) == 1
        first[index] = first[before[0]] if alone else index
        found[first[index]] = found.get(first[index], 0) | 1 << index
    return tuple(found.values())


def ios(graph: Graph, table: Sequence[list[float]]) -> tuple[float, int]:
    """IOS's schedule in ms, block by block, and the most operators in a stage that were looked at in every block.

    Its operators are stretches on which nothing forks or joins, as the paper takes a convolution and its activation
    for one.
    """
    known: dict[str, tuple[float, int]] = {}
    total, smallest = 0.0, math.prod(PRUNING[0])
    for block in Width(graph, graph.all_nodes).blocks(graph.all_nodes):
        region, rows = cut_out(graph, block, table)
        work = Work.of(region, [row[0] for row in rows], IDEAL)
        units = chains(work)
        if not units:
            continue
        owner = {index: unit for unit, nodes in enumerate(units) for index in members(nodes)}
        ms = [[sum(column) for column in zip(*(rows[i] for i in members(nodes)), strict=True)] for nodes in units]
        succ = [0] * len(units)
        for index, unit in owner.items():
            for reader in work.after[index]:
                succ[unit] |= (1 << owner[reader]) & ~(1 << unit)
        key = json.dumps([ms, succ])
        if key not in known:
            known[key] = ios_ms(ms, succ, HANDOFF_MS)
        total, smallest = total + known[key][0], min(smallest, known[key][1])
    return total, smallest


class Ours:
    """The project's choice on a machine: operators on all cores, and regions on lanes."""

    def __init__(self, graph: Graph, table: Sequence[list[float]], machine: Machine) -> None:
        self.graph, self.table, self.machine = graph, table, machine
        found = {nodes for pattern in lane_patterns() for nodes in pattern.find(graph, graph.all_nodes)}
        self.proposals = sorted(nodes for nodes in found if graph.is_connected(nodes) and graph.is_convex(nodes))
        self._lanes: dict[int, list[tuple[Match, float]]] = {}

    def shortest_ms(self, widths: Sequence[int]) -> tuple[float, bool]:
        """With lanes of so many cores: ms, and whether it is the optimum of what there is to choose from."""
        priced = [(Match(1 << i, "serial", "all"), row[-1]) for i, row in enumerate(self.table)]
        priced += [one for width in widths for one in self._in_lanes(width)]
        matches, costs = zip(*priced, strict=True)
        borders = {match.engine: Border(0.0, 0.0) for match in matches}
        result = cheapest_covers(SearchSpace(self.graph, matches, CostModel(costs, borders)))
        return result.cost_ms, result.exact

    def _in_lanes(self, width: int) -> list[tuple[Match, float]]:
        if width not in self._lanes:
            self._lanes[width] = [self._priced(nodes, width) for nodes in self.proposals]
        return self._lanes[width]

    def _priced(self, nodes: NodeSet, width: int) -> tuple[Match, float]:
        region, rows = cut_out(self.graph, nodes, self.table)
        work = Work.of(region, [row[self.machine.widths.index(width)] for row in rows], IDEAL)
        _, timeline = schedule(work, self.machine.cores // width, EFFORT)
        return Match(nodes, "lanes", f"{width}"), timeline.makespan_ms + HANDOFF_MS


def simulate(name: str, graph: Graph, times: Sequence[float], cores: int) -> Row:
    """All schedules of one model on one machine; ``times`` are ms of its nodes on one core."""
    machine = Machine(cores)
    table = op_table(graph, times, machine)
    fastest = [row[-1] for row in table]
    stages_ms, stage = ios(graph, table)
    ours = Ours(graph, table, machine)
    one_core, first = ours.shortest_ms([1])
    any_width, second = ours.shortest_ms(machine.widths[:-1])
    work = sum(row[0] for row in table)
    path = path_ms(graph, fastest)
    return Row(name, cores, path, work, sum(fastest), stages_ms, stage, one_core, any_width, first and second)


def table_of(rows: Sequence[Row]) -> Table:
    """Each schedule over the bound."""
    shown = Table()
    for column in ("model", "cores", "bound, ms", "serial", "IOS", "lanes of one core", "lanes of several", "exact"):
        shown.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        times = (row.serial_ms, row.ios_ms, row.one_core_lanes_ms, row.lanes_ms)
        ratios = [f"{ms / row.bound_ms:.2f}" for ms in times]
        shown.add_row(row.model, str(row.cores), f"{row.bound_ms:.2f}", *ratios, "yes" if row.exact else "no")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--cores", type=int, nargs="+", choices=(2, 4, 8, 16, 32, 64), default=[2, 8, 64])
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="run directories, whose costs are taken")
    options = parser.parse_args()
    subjects = [(name, graph, list(node_ms(graph))) for name in options.models for graph in [model_graph(name)]]
    subjects += [(str(run), *run_graph(run)) for run in options.runs]
    rows: list[Row] = []
    for name, graph, times in subjects:
        for cores in options.cores:
            rows.append(simulate(name, graph, times, cores))
            print(rows[-1], flush=True)
    options.output.write_text(json.dumps([asdict(row) for row in rows]))
    Console(width=140).print(table_of(rows))


if __name__ == "__main__":
    main()
