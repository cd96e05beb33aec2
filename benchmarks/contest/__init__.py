"""The parts of ``benchmarks/precision.py``: tasks with their data, contestants, how each is judged."""
