"""Equal graphs that may run faster: what is rewritten where, and a region with that written into it."""
