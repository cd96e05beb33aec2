"""Built-in models, written node by node."""

PREFIX = "builtin:"
"""Of the source of a built-in model or of synthetic data."""
