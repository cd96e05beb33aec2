"""Shapes of subgraph that backends can take, and how they are found."""
