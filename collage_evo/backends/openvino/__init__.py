"""The OpenVINO backend."""

from collage_evo.backends.openvino.backend import OpenVinoBackend

__all__ = ["OpenVinoBackend"]
