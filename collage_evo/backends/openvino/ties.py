"""Equal numbers where OpenVINO chooses otherwise than ONNX: the order of TopK, the threshold of NonMaxSuppression."""

from __future__ import annotations

from typing import Any

import numpy as np

_INDICES, _OVERLAP = (0, 1), 3


def choose_as_onnx(model: Any) -> None:
    """Change ``model`` and its bodies, in place, so that they choose among equal numbers as ONNX requires.

    OpenVINO 2026.4 reads ONNX's TopK and Hardmax as a TopK that is not stable. Its NonMaxSuppression drops a box that
    overlaps just as much as the threshold, so a constant threshold becomes the next float.
    """
    from openvino import opset11
    from openvino.passes import Manager, Matcher, MatcherPass, WrapType

    def stable(node: Any) -> bool:
        attributes = node.get_attributes()
        if attributes["stable"]:
            return False
        ordered = opset11.topk(
            *map(node.input_value, _INDICES),
            *(attributes[name] for name in ("axis", "mode")),
            "value",  # an unsorted one cannot be stable
            index_element_type=attributes["index_element_type"],
            stable=True,
        )
        for place in _INDICES:
            node.output(place).replace(ordered.output(place))
        return True

    def above(node: Any) -> bool:
        threshold = node.input_value(_OVERLAP).get_node()
        if threshold.get_type_name() != "Constant":
            return False
        raised = np.nextafter(threshold.get_data().astype(np.float32), np.float32(np.inf))
        node.input(_OVERLAP).replace_source_output(opset11.constant(raised).output(0))
        return True

    class Rewrite(MatcherPass):  # type: ignore[misc]  # the library has no types
        def __init__(self, operator: str, change: Any) -> None:
            super().__init__()
            pattern = Matcher(WrapType(operator), operator)
            self.register_matcher(pattern, lambda found: change(found.get_match_root()))

    manager = Manager()
    manager.register_pass(Rewrite("opset11.TopK", stable))
    manager.register_pass(Rewrite("opset9.NonMaxSuppression", above))
    manager.run_passes(model)
