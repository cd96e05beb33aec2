"""The exact dynamic program over acyclic covers of the graph.

``search/cover/dynamic_program.py`` finds the cheapest acyclic cover exactly where its effort allows, else with a
bound on what may be missing; what no cost changes of its view of a space (``search/cover/layout.py``) is made once.
It, its near-optima, each single backend and greedy partitions are the first population. These seeds are made one by
one (``search/evolution/seeds.py``) and measured while the program works on the next. The first is a single backend
that is known to be right; where matches differ in error every engine alone follows, the fastest families first. They
are measured whatever is predicted of them.
"""
