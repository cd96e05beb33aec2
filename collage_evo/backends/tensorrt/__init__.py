"""The TensorRT backend."""

from collage_evo.backends.tensorrt.backend import TensorRtBackend

__all__ = ["TensorRtBackend"]
