"""The exact dynamic program over acyclic covers of the graph."""
