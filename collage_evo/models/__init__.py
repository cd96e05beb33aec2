"""Built-in models, written node by node."""
