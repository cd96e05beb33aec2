"""The TensorRT backend."""

from collage_evo.backends.cuda.tensorrt.backend import TensorRtBackend

__all__ = ["TensorRtBackend"]
