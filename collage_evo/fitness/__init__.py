"""Measured latency: pieces are built, costs and placements measured, and answers compared.

A backend that crashes, hangs, leaks, writes on its inputs or gives wrong numbers, at once or after a thousand runs,
is a failure in the result (``cost_model.refused`` by kind, ``search.unfit``, ``baselines``).
``tests/support/faults.py`` is a backend whose variants are these faults.
"""
