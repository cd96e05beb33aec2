"""The models that come with the program, written node by node."""
