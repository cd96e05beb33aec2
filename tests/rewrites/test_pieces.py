"""Pieces with rewrites are enumerated, keyed, built and merged, beside int8 too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends import rewritten
from collage_evo.backends.base import Backend, Support, Target, no
from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.registry import device_of, get_backend
from collage_evo.backends.rewritten import LARGEST_EPILOGUE, rewritten_matches, with_epilogue
from collage_evo.backends.select import exact_arithmetic
from collage_evo.backends.tvm.backend import TvmBackend
from collage_evo.backends.variants import Arithmetic, Variant, plain_name
from collage_evo.codec import from_json, to_json
from collage_evo.costs.matches import CostKeys, CostSettings
from collage_evo.errors import InputError
from collage_evo.files import write_json
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.fitness.jobs import BuildJob, Job, bare
from collage_evo.fitness.kernels import node_owners
from collage_evo.genome.failure import Failed
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Match, Placement, Region
from collage_evo.precision.quantise.ranges import calibrate, read_ranges
from collage_evo.precision.quantise.rules import Range
from collage_evo.precision.transforms.edits import nodes_in
from collage_evo.rewrites.joined_products import JoinedProducts
from collage_evo.rewrites.rewrite import Draft, Replacement
from collage_evo.runtime.timing import TimingSettings
from tests.rewrites.conftest import Offer
from tests.rewrites.test_write import GRAPH, NAME, SITES, module
from tests.support.numerics import in_int8
from tests.support.processor import needs

ENGINE = ("onnxruntime", f"default~{NAME}")
SETTINGS = CostSettings(TimingSettings(1, 3, 0.001), flush=False)
JOINED = (JoinedProducts(),)


def two_products(b: Builder) -> list[str]:
    weights = b.const(np.ones((4, 3), np.float32))
    return [b.op("MatMul", b.input(name, (1, 4)), weights) for name in "xy"]


class NoSplit(OnnxRuntimeBackend):
    name = "nosplit"

    def supports_node(self, graph: Graph, node: Node) -> Support:
        return no("no Split here") if node.op_type == "Split" else super().supports_node(graph, node)


def rewritten_match(site: int = SITES[0][1], nodes: int = 0) -> Match:
    return Match(nodes or site, *ENGINE, base="default", edits=((NAME, site),))


def test_each_site_is_a_match_of_each_engine_that_takes_what_is_written_there() -> None:
    backends: Sequence[Backend] = (OnnxRuntimeBackend(), NoSplit())
    found = enumerate_matches(GRAPH, backends, rewrites=JOINED)
    written = [match for match in found.matches if match.rewrites]
    assert {match.rewrites[0][1] for match in written} == {site for _, site in SITES}
    assert {match.engine for match in written} == {ENGINE}
    assert all(match.family == ("onnxruntime", "default") and exact_arithmetic(match) for match in written)
    refused = {(r.backend, r.pattern, r.reason) for r in found.rejected if r.pattern == NAME}
    assert refused == {("nosplit", NAME, "no Split here")}
    assert not any(match.rewrites for match in enumerate_matches(GRAPH, backends).matches)
    assert not rewritten_matches(GRAPH, backends, JOINED, left_out=[("onnxruntime", "default")]).matches


def test_a_site_takes_the_elementwise_operators_along_that_only_it_feeds() -> None:
    b = Builder("epilogue")
    one, two = two_products(b)
    z = b.input("z", (1, 3))
    added = b.op("Add", b.op("Relu", one), b.op("Tanh", two))
    graph = build_graph(b.model(b.op("Sigmoid", b.op("Mul", added, z)), b.op("Exp", added)))
    (site,) = JoinedProducts().sites(graph)
    names = [graph.nodes[node].op_type for node in members(with_epilogue(graph, site))]
    assert sorted(names) == ["Add", "MatMul", "MatMul", "Relu", "Tanh"]
    sizes = {m.nodes.bit_count() for m in enumerate_matches(graph, [OnnxRuntimeBackend()], rewrites=JOINED).matches
             if m.rewrites}  # fmt: skip
    assert sizes == {2, 5}


@pytest.mark.parametrize("kind", ["long", "leaves", "read by others"])
def test_operators_behind_a_site_are_taken_along_where_nobody_else_needs_what_is_between(kind: str) -> None:
    b = Builder("behind")
    one, two = two_products(b)
    y = one
    for _ in range(LARGEST_EPILOGUE + 2):
        y = b.op("Tanh", y)
    others = {"long": [], "leaves": [one], "read by others": [b.op("Softmax", one)]}[kind]
    graph = build_graph(b.model(y, b.op("Softmax", two), *others))
    (site,) = JoinedProducts().sites(graph)
    assert (with_epilogue(graph, site) & ~site).bit_count() == (LARGEST_EPILOGUE if kind == "long" else 0)


def test_sites_that_were_too_many_to_try_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewritten, "MAX_SITES", 1)
    found = enumerate_matches(GRAPH, [OnnxRuntimeBackend()], rewrites=JOINED)
    assert {match.rewrites[0] for match in found.matches if match.rewrites} == {SITES[0]}
    assert found.cut == (NAME,)
    monkeypatch.setattr(rewritten, "MAX_SITES", len(SITES))
    assert not enumerate_matches(GRAPH, [OnnxRuntimeBackend()], rewrites=JOINED).cut


class Several(OnnxRuntimeBackend):
    name = "several"
    variants = (Variant(), Variant("short", Arithmetic.BFLOAT16), Variant("of-another", base="default"))

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        return self.variants

    def declines(self, variant: Variant) -> str:
        return ""  # whatever the processor computes in


class Helper(OnnxRuntimeBackend):
    name = "helper"
    least_threads = 1

    def on_threads(self, threads: int) -> Backend:
        return self

    def stands_on(self, variant: Variant) -> tuple[str, str]:
        return ("several", variant.name)


def test_libraries_take_what_is_rewritten_in_each_precision_that_compiles_pieces_as_they_are() -> None:
    found = enumerate_matches(GRAPH, [Several(), Helper()], 1.0, rewrites=JOINED)
    assert {match.backend for match in found.matches} == {"several", "helper"}
    written = {match.engine: match.family[1] for match in found.matches if match.rewrites}
    assert written == {("several", f"default~{NAME}"): "default", ("several", f"short~{NAME}"): "short"}
    exact = enumerate_matches(GRAPH, [Several()], 0.0, rewrites=JOINED)
    assert {match.variant for match in exact.matches if match.rewrites} == {f"default~{NAME}"}


def test_a_backend_knows_a_rewritten_variant_as_the_one_that_compiles_it() -> None:
    variant = get_backend("onnxruntime").variant(ENGINE[1])
    assert variant == replace(get_backend("onnxruntime").variant("default"), name=ENGINE[1])
    assert variant.base == "default"
    assert TvmBackend().variant(ENGINE[1]).base == "default"
    assert TvmBackend().variant("tuned-1").base == "tuned-1"
    assert device_of(*ENGINE) == "cpu"
    assert exact_arithmetic(Match(1, *ENGINE))
    with pytest.raises(InputError, match="no variant nonsense"):
        get_backend("onnxruntime").variant(f"nonsense~{NAME}")


def test_keys_tell_rewritten_parts_from_plain_ones() -> None:
    written, plain_ = rewritten_match(), Match(SITES[0][1], "onnxruntime")
    other = rewritten_match(SITES[1][1], SITES[0][1] | SITES[1][1])
    both = replace(other, edits=SITES)
    keys = [CostKeys(GRAPH, Target(), SETTINGS).of(match) for match in (written, plain_, other, both)]
    assert len(set(keys)) == 4
    placements = [Placement((bare(match),)) for match in (written, plain_, other, both)]
    assert len({placement.key for placement in placements}) == 4


def test_a_region_travels_with_its_rewrites() -> None:
    region = Region(GRAPH.all_nodes, "onnxruntime", edits=SITES)
    assert from_json(to_json(BuildJob(bare(region)), Job), Job).region == region


def run(graph: Graph, region: Region, folder: Path, ranges: Path | None = None) -> object:
    """Outputs of the compiled region on random inputs."""
    piece = Compiler(Target(), PieceCache(folder / "cache", 2**30), ranges).region(graph, region)
    feeds = random_inputs(build_graph(extract(graph, region.nodes)), 0)
    outputs = [np.empty(graph.tensors[name].shape, graph.tensors[name].dtype) for name in piece.outputs]
    types = [[graph.tensors[name] for name in side] for side in (piece.inputs, piece.outputs)]
    loaded = OnnxRuntimeBackend().load(piece.directory, Target(), Variant(region.variant), *types)
    loaded.bind(list(feeds.values()), outputs)()  # type: ignore[arg-type]
    return outputs


def error(graph: Graph, outputs: object) -> float:
    model = extract(graph, graph.all_nodes)
    return relative_error(outputs, plain(Reference(model).run(random_inputs(build_graph(model), 0)))).relative


def test_a_rewrite_that_is_not_known_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no rewrite 'gone'"):
        run(GRAPH, Region(GRAPH.all_nodes, "onnxruntime", edits=(("gone", 1),)), tmp_path)


def test_a_region_may_be_rewritten_in_one_part_and_in_int8_in_another(tmp_path: Path) -> None:
    b = Builder("both")
    z, x = b.input("z", (1, 9)), b.input("x", (1, 4))
    joined = b.op("Add", z, module(b, x, 4))
    w = b.const(np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32))
    graph = build_graph(b.model(b.op("MatMul", joined, w, output="last")))
    (site,) = JoinedProducts().sites(graph)
    last = 1 << graph.producer["last"]
    write_json(
        tmp_path / "ranges", dict[str, Range], calibrate(graph, [random_inputs(graph, seed) for seed in range(3)])
    )
    region = Region(graph.all_nodes, "onnxruntime", "default", edits=(*in_int8(last), (NAME, site)))
    outputs = run(graph, region, tmp_path, tmp_path / "ranges")
    assert 1e-4 < error(graph, outputs) < 0.05  # int8 rounds, and inputs of one shape would be exchanged unseen
    unwritten = run(graph, replace(region, edits=in_int8(last)), tmp_path, tmp_path / "ranges")
    assert error(graph, outputs) == pytest.approx(error(graph, unwritten), rel=0.1)
    inside = run(graph, replace(region, edits=(*in_int8(last | site), (NAME, site))), tmp_path, tmp_path / "ranges")
    assert 1e-4 < error(graph, inside) < 0.05
    assert error(graph, inside) != error(graph, outputs)


class FlatRelu:
    """Relu on the flattened tensor."""

    name = "flat-relu"

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        yield from (1 << node.index for node in graph.nodes if node.op_type == "Relu")

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        node, draft = graph.nodes[nodes.bit_length() - 1], Draft(graph)
        shape = graph.tensors[node.outputs[0]].shape
        flat = draft.node("Reshape", [node.inputs[0], draft.constant(np.array([-1]))])
        draft.node("Reshape", [draft.node("Relu", [flat]), draft.constant(np.array(shape))], node.outputs[0])
        return draft.finished()


@needs(Arithmetic.INT8)
def test_what_a_rewrite_writes_is_in_the_precision_of_its_site(tmp_path: Path) -> None:
    write_json(
        tmp_path / "ranges", dict[str, Range], calibrate(GRAPH, [random_inputs(GRAPH, seed) for seed in range(3)])
    )
    ranges = read_ranges(tmp_path / "ranges")
    found = enumerate_matches(GRAPH, [OnnxRuntimeBackend()], 1.0, ranges=ranges, rewrites=JOINED)
    written = {
        match.variant: match for match in found.matches if match.rewrites == SITES[:1] and match.nodes == SITES[0][1]
    }
    assert {"default", "int8"} <= {plain_name(name) for name in written}
    low = written[f"int8~{NAME}"]
    assert nodes_in(low.numerics, Arithmetic.INT8) == low.nodes
    assert (low.family, exact_arithmetic(low)) == (("onnxruntime", "default"), False)
    compiler = Compiler(Target(), PieceCache(tmp_path / "cache", 2**30), tmp_path / "ranges")
    region = bare(low)
    model = compiler.model(GRAPH, region)
    assert "QuantizeLinear" in {proto.op_type for proto in model.graph.node}
    owners, _ = node_owners(GRAPH, region, model)
    assert set(owners.values()) == {low.nodes}


def test_a_site_that_cannot_be_in_a_precision_is_a_reason(tmp_path: Path) -> None:
    region = Region(SITES[0][1], "onnxruntime", edits=(*in_int8(SITES[0][1]), *SITES[:1]))
    with pytest.raises(Failed, match=f"nothing of what {NAME} writes can run in int8"):
        run(GRAPH, region, tmp_path)


def test_int8_reads_what_a_rewrite_moved_with_the_range_that_it_had(tmp_path: Path, offer: Offer) -> None:
    offer(FlatRelu())
    b = Builder("moved")
    w = b.const(np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32))
    graph = build_graph(b.model(b.op("Conv", b.op("Relu", b.op("Tanh", b.input("x", (1, 3, 6, 6)))), w)))
    write_json(
        tmp_path / "ranges", dict[str, Range], calibrate(graph, [random_inputs(graph, seed) for seed in range(3)])
    )
    (site,) = FlatRelu().sites(graph)
    region = Region(graph.all_nodes, "onnxruntime", edits=(*in_int8(1 << 2), (FlatRelu.name, site)))
    assert 1e-4 < error(graph, run(graph, region, tmp_path, tmp_path / "ranges")) < 0.05
    (tmp_path / "ranges").unlink()
    with pytest.raises(Failed, match="range"):
        run(graph, region, tmp_path, tmp_path / "ranges")
