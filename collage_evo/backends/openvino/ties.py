"""Order of equal values in OpenVINO's TopK."""

from __future__ import annotations

from typing import Any


def keep_order_of_ties(model: Any) -> None:
    """Make each TopK of ``model`` and its bodies return equal values by their index, as ONNX requires, in place.

    OpenVINO 2026.4 reads ONNX's TopK as one that is not stable.
    """
    from openvino import opset11
    from openvino.passes import Manager, Matcher, MatcherPass, WrapType

    def change(found: Any) -> bool:
        node = found.get_match_root()
        attributes = node.get_attributes()
        if attributes["stable"]:
            return False
        stable = opset11.topk(
            *(node.input_value(place) for place in (0, 1)),
            *(attributes[name] for name in ("axis", "mode", "sort")),
            index_element_type=attributes["index_element_type"],
            stable=True,
        )
        for place in (0, 1):
            node.output(place).replace(stable.output(place))
        return True

    class Stable(MatcherPass):  # type: ignore[misc]  # the library has no types
        def __init__(self) -> None:
            super().__init__()
            self.register_matcher(Matcher(WrapType("opset11.TopK"), "stable TopK"), change)

    manager = Manager()
    manager.register_pass(Stable())
    manager.run_passes(model)
