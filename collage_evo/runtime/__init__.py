"""Loads and runs artifacts. Needs numpy and the backends of the artifact, nothing of the search."""
