"""Backends that break one promise each about what they take, build or declare, and some that keep theirs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx

from collage_evo.backends.base import YES, BuildFailure, Built, Probe, no
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.patterns.language import GraphPattern

from .wrong import Bound, Interpreter, Right


class Reload(Right):
    """Remembers in memory what belongs into its files."""

    built: dict[str, bytes] = {}  # noqa: RUF012

    def build(self, model, target, variant, workdir):
        done = super().build(model, target, variant, workdir)
        if isinstance(done, Built):
            path = workdir / "model.onnx"
            Reload.built[str(len(Reload.built))] = path.read_bytes()
            path.write_text(str(len(Reload.built) - 1))
        return done

    def load(self, workdir, target, variant, inputs, outputs):
        return Interpreter(onnx.load_from_string(Reload.built[(workdir / "model.onnx").read_text()]))


class Absent(Right):
    """Cannot be used here."""

    def probe(self) -> Probe:
        return Probe(False, reason="no such device")


class Stray(Right):
    """Leaves a file that it does not declare."""

    def build(self, model, target, variant, workdir: Path):
        (workdir / "log.txt").write_text("done")
        return super().build(model, target, variant, workdir)


class Raises(Right):
    """Raises where it should return a failure."""

    def build(self, model, target, variant, workdir):
        done = super().build(model, target, variant, workdir)
        if isinstance(done, BuildFailure):
            raise RuntimeError(done.reason)
        return done


class Claims(Right):
    """Builds anything."""

    def build(self, model, target, variant, workdir):
        onnx.save(model, workdir / "model.onnx")
        return Built(("model.onnx",))


class Silent(Right):
    """Refuses without a reason."""

    def supports_node(self, graph, node):
        return super().supports_node(graph, node) or no("")


class OnceBuilt(Right):
    """Two variants load the same files; compiles nothing twice."""

    variants = (DEFAULT, Variant("other", built_as=DEFAULT.name))
    seen: set[bytes] = set()  # noqa: RUF012

    def build(self, model, target, variant, workdir):
        known = model.SerializeToString(deterministic=True)
        if known in OnceBuilt.seen:
            return BuildFailure("compiled before")
        OnceBuilt.seen.add(known)
        return super().build(model, target, variant, workdir)


class Unused(Right):
    """Declares a pattern that fits nowhere."""

    def patterns(self):
        return (*super().patterns(), GraphPattern("nowhere", lambda op: op.NoSuchOperator(...)))


class Follows(Claims):
    """Says that it looks at indices, and does not."""

    def guards(self, variant):
        return True

    def supports_node(self, graph, node):
        return YES if node.op_type == "Gather" and "axis" not in node.attributes else no("only rows are taken")

    def load(self, workdir, target, variant, inputs, outputs):
        return Bound(lambda ins, outs: lambda: np.copyto(outs[0], np.take(ins[0], ins[1], 0, mode="wrap")))


class Checked(Follows):
    """Does not look at indices, and says so."""

    def guards(self, variant):
        return False


class Open(Claims):
    """Takes open inputs of anything, by the reference."""

    refuses_shapes = True

    def supports_node(self, graph, node):
        return YES

    def load(self, workdir, target, variant, inputs, outputs):
        loaded = Bound(None)
        loaded.run = partial(self.outputs, onnx.load(workdir / "model.onnx"))
        return loaded

    def outputs(self, model, inputs):
        return reference_outputs(model, dict(zip([one.name for one in model.graph.input], inputs, strict=True)))


class Compiled(Open):
    """Gives as many rows as in the shape that it was compiled for."""

    def outputs(self, model, inputs):
        return [output[:, :6] for output in super().outputs(model, inputs)]


class Lenient(Open):
    """Takes the first of several where there is an axis too many."""

    def outputs(self, model, inputs):
        ranks = [len(one.type.tensor_type.shape.dim) for one in model.graph.input]
        pairs = zip(ranks, inputs, strict=True)
        return super().outputs(model, [one[0] if one.ndim > rank else one for rank, one in pairs])
