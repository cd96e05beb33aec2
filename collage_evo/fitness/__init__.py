"""Measured latency: pieces are built, costs and placements measured, and answers compared."""
