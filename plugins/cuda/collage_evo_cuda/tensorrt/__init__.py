"""The TensorRT backend."""

from collage_evo_cuda.tensorrt.backend import TensorRtBackend

__all__ = ["TensorRtBackend"]
