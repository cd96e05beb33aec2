"""The corpus of ``real_models.py``: ONNX files that others trained, files made here, and ONNX's own node tests."""
