"""collage_evo: the fastest correct placement of an ONNX model over a machine's inference backends."""

__version__ = "0.1.0"
