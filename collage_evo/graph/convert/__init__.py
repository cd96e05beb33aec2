"""An ONNX model as a graph with static types, and a region of a graph as an ONNX model."""
