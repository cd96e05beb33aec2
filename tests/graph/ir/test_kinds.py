"""Nodes of equal blocks are of one kind; another shape, attribute or neighbour makes another kind."""

from __future__ import annotations

import onnx

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.models.bert import bert
from tests.support.models import parse_graph
from tests.support.spaces import encoder_like


def test_equal_layers_have_equal_kinds() -> None:
    kinds = kinds_of(encoder_like(6))
    copies = [kinds[1 + 11 * layer : 12 + 11 * layer] for layer in range(6)]
    assert copies[1] == copies[2] == copies[3] == copies[4]
    # Queries and keys enter the same product; all others of a layer differ.
    assert len(set(copies[2])) == 10


def test_layers_of_an_encoder_with_other_weights_are_of_one_kind() -> None:
    graph = build_graph(normalise(bert(0, layers=5, length=8, hidden=16, heads=2, vocabulary=11)))
    kinds = {node.name: kind for node, kind in zip(graph.nodes, kinds_of(graph), strict=True)}
    assert len({kinds[f"layer.{layer}.intermediate.matmul"] for layer in range(5)}) == 1
    # The products for queries, keys and values cost the same; those of the first layer follow the embeddings.
    parts = ("query", "key", "value")
    assert len({kinds[f"layer.{layer}.attention.{part}.matmul"] for layer in (1, 2, 3, 4) for part in parts}) == 1
    assert kinds["layer.0.attention.query.matmul"] != kinds["layer.1.attention.query.matmul"]
    assert len(set(kinds.values())) < len(graph.nodes) / 3


def test_another_attribute_makes_another_kind() -> None:
    def kinds(sixth: float) -> tuple[int, ...]:
        alphas = (1.0, 1.0, 1.0, 1.0, 1.0, sixth, 1.0)
        steps = " ".join(f"t{i + 1} = Elu<alpha = {alpha}>(t{i})" for i, alpha in enumerate(alphas))
        model = parse_graph(f"m (float[1,8] t0) => (float[1,8] t7) {{ {steps} }}")
        return kinds_of(build_graph(onnx.shape_inference.infer_shapes(model)))

    assert kinds(1.0)[2] == kinds(1.0)[3] == kinds(1.0)[4]
    assert len(set(kinds(2.0))) == 7
