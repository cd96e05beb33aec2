"""Runs: stages joined to a pipeline, the run directory, sweeps."""
