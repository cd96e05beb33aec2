"""The ONNX Runtime backend."""

from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend

__all__ = ["OnnxRuntimeBackend"]
