"""Programs in manifests that every reader refuses in one line: that of artifacts, and that of the execution provider.

Each has a name, a change, and words of the refusal. The change is of a manifest, of its program, which the
provider's manifest is itself, and of that program's pieces; the program is that of :data:`FORKED`, with a piece for
each operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

FORKED = "g (float[1, 4] x) => (float[1, 4] y, float[1, 4] z) <float[1, 4] a> { a = Neg(x) y = Relu(a) z = Exp(a) }"
"""Both outputs are of one type."""
Change = Callable[[dict[str, Any], dict[str, Any], list[dict[str, Any]]], object]


def _unmade(manifest: object, program: dict[str, Any], pieces: object) -> None:
    program["tensors"]["w"] = program["tensors"]["z"]
    program["outputs"] = ["y", "w"]


_BORDER = "|was built for other tensors"
"""The words of an artifact's reader for a piece that does not fit its border.json."""
HOSTILE: Mapping[str, tuple[Change, str]] = {
    "outputs in another order": (lambda m, p, r: p["outputs"].reverse(), "in the place of|other inputs or outputs"),
    "an output twice": (lambda m, p, r: p.update(outputs=["y", "y"]), "an input or output is named twice"),
    "an input twice": (lambda m, p, r: p.update(inputs=["x", "x"]), "an input or output is named twice"),
    "an output less": (lambda m, p, r: p["outputs"].pop(), "other inputs or outputs"),
    "an input that is no tensor": (lambda m, p, r: p.update(inputs=["nothing"]), "no tensor '?nothing"),
    "an output that is no tensor": (lambda m, p, r: p.update(outputs=["y", "nothing"]), "no.* '?nothing"),
    "a tensor made twice": (lambda m, p, r: r[1]["outputs"].append("a"), "which is there already" + _BORDER),
    "an input made again": (lambda m, p, r: r[0]["outputs"].append("x"), "which is there already" + _BORDER),
    "an output nobody makes": (_unmade, "nothing makes the output '?w"),
    "pieces that make nothing": (lambda m, p, r: r[0]["outputs"].clear(), "makes nothing" + _BORDER),
    "pieces in another order": (lambda m, p, r: r.reverse(), "which nothing before it makes"),
    "a piece twice": (lambda m, p, r: r.append(r[1]), "two regions have one file|which is there already"),
    "no piece": (lambda m, p, r: r.clear(), "nothing makes the output"),
    "limits of nothing": (lambda m, p, r: p["limits"].update(b=[0, 5]), "b.* has limits and is no input"),
    "limits of a tensor between": (lambda m, p, r: p["limits"].update(a=[0, 5]), "a.* has limits and is no input"),
    "limits that are no range": (lambda m, p, r: p["limits"].update(x=[0]), "limits.*(are no range|1 values)"),
    "an unknown type": (lambda m, p, r: p["tensors"]["a"].update(dtype="string"), "tensor '?a'? is string"),
    "another type": (lambda m, p, r: p["tensors"]["y"].update(dtype="float64"), "float64|built for other"),
    "another type as wide": (lambda m, p, r: p["tensors"]["y"].update(dtype="int32"), "int32|built for other"),
    "another rank": (lambda m, p, r: p["tensors"]["y"].update(shape=[4]), r"\[4\]" + _BORDER),
    "another size": (lambda m, p, r: p["tensors"]["y"].update(shape=[1, 3]), r"\[1, 3\]" + _BORDER),
    "a size that is none": (lambda m, p, r: p["tensors"]["a"].update(shape=[1, -2]), r"tensor '?a'? "),
    "a size without end": (lambda m, p, r: p["tensors"]["a"].update(shape=[1, 2**62]), "461168601842" + _BORDER),
    "a size with a fraction": (lambda m, p, r: p["tensors"]["a"].update(shape=[1, 4.5]), "4.5|a fraction"),
    "a size above 64 bits": (lambda m, p, r: p["tensors"]["a"].update(shape=[1, 2**80]), "too large|built for other"),
    "a schema between two": (lambda m, p, r: m.update(schema=m["schema"] + 0.9), r"schema \d\.9|a fraction"),
}
