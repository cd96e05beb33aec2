"""Reference outputs by ONNX Runtime without graph optimisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from collage_evo.errors import InputError, one_line
from collage_evo.graph.ir.values import plain
from collage_evo.graph.ir.weights import is_heavy, light, weight_files
from collage_evo.graph.reference.interruptible import interruptible
from collage_evo.graph.reference.ort_values import run_raw, run_session

if TYPE_CHECKING:
    import onnxruntime as ort


class Reference:
    """A model loaded once for many inputs. Ctrl-C ends loading and running it.

    Args:
        model: runs as it is written.
        threads: inside one operator.
        optimised: use all of ONNX Runtime's graph optimisations, its default. A model that loads only with them,
            because an operator has no kernel of its own, always gets them.
        timeout_s: limit of one run in seconds; None for no limit.
        in_order: run the nodes in the model's order, and a Shape as soon as its input is there. By default ONNX
            Runtime runs last what only outputs need, and holds in memory until then what that reads.

    Raises:
        InputError: ONNX Runtime cannot load the model.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        threads: int = 1,
        optimised: bool = False,
        timeout_s: float | None = None,
        in_order: bool = False,
    ) -> None:
        import onnxruntime as ort  # imported here: a measuring process loads only the libraries that it measures

        self._timeout_s = timeout_s
        levels = ort.GraphOptimizationLevel
        # ONNX Runtime's exceptions have no base class but Exception; its Python part raises ValueError and others.
        try:
            level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
            self._session = _session(model, threads, level, in_order)
        except Exception as error:
            try:
                self._session = _session(model, threads, levels.ORT_ENABLE_ALL, in_order)
            except Exception:
                raise InputError(f"ONNX Runtime cannot load the model: {one_line(error)}") from error

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs, in their order."""
        return [value.name for value in self._session.get_outputs()]

    @property
    def declared(self) -> dict[str, tuple[str, tuple[int, ...] | None]]:
        """The type of each output, as ``tensor(float)``, and its sizes; None if one is not known before a run."""
        values = {value.name: (value.type, tuple(value.shape)) for value in self._session.get_outputs()}
        return {
            name: (kind, sizes if all(isinstance(size, int) for size in sizes) else None)
            for name, (kind, sizes) in values.items()
        }

    @property
    def optional(self) -> set[str]:
        """The outputs that may hold nothing."""
        return {value.name for value in self._session.get_outputs() if value.type.startswith("optional(")}

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs, in the model's order: arrays, lists or maps, by their declared types.

        Raises:
            InputError: the model fails on these inputs, or takes too long.
        """
        return self._ended_in_time(run_session, feeds)

    def run_named(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, in the form of :func:`plain`. Raises as :meth:`run`."""
        return dict(zip(self.outputs, plain(self.run(feeds)), strict=True))

    def run_raw(self, feeds: Mapping[str, Any]) -> list[ort.OrtValue]:
        """The outputs as ONNX Runtime's own values: also of types that NumPy lacks. Raises as :meth:`run`."""
        return self._ended_in_time(run_raw, feeds)

    def _ended_in_time(self, run: Callable[..., list[Any]], feeds: Mapping[str, Any]) -> list[Any]:
        import onnxruntime as ort

        options = ort.RunOptions()
        options.log_severity_level = 4

        def stop() -> None:
            options.terminate = True

        try:
            return interruptible(lambda: run(self._session, feeds, options), stop, self._timeout_s)
        except TimeoutError:
            took = f"a run of the model takes longer than {self._timeout_s:g} s"
            raise InputError(f"{took}: ONNX Runtime was stopped; fitness.timeout_s allows more") from None
        except Exception as error:
            raise InputError(f"ONNX Runtime cannot run the model: {one_line(error)}") from error


def _session(
    model: onnx.ModelProto, threads: int, level: ort.GraphOptimizationLevel, in_order: bool
) -> ort.InferenceSession:
    import onnxruntime as ort

    options = ort.SessionOptions()
    if in_order:
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.graph_optimization_level = level
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # by default it rounds to int8
    providers = ["CPUExecutionProvider"]
    if is_heavy(model):
        folder = str(weight_files().directory)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        options.add_session_config_entry("session.disable_prepacking", "1")  # packed weights would be a copy of all
        model = light(model)
    return interruptible(lambda: ort.InferenceSession(model.SerializeToString(), options, providers=providers))


def dtype_of(declared: str) -> np.dtype | None:
    """The NumPy type of ONNX Runtime's ``tensor(float)`` and the like; None for anything but a tensor of numbers."""
    name = declared.removeprefix("tensor(").removesuffix(")").upper()
    kind = dict(TensorProto.DataType.items()).get(name)
    if not declared.startswith("tensor(") or kind in (None, TensorProto.STRING):
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


def reference_outputs(model: onnx.ModelProto, feeds: Mapping[str, Any], threads: int = 1) -> list[Any]:
    """The model's outputs on ``feeds``, in the model's order. Raises InputError as ``Reference`` does."""
    return Reference(model, threads).run(feeds)
