"""Exact dynamic program over acyclic covers of the graph.

``genome/cover/dynamic_program.py`` finds the cheapest acyclic cover exactly if its effort allows, else with a bound
on the gap to it; the part of its view of a space that costs do not change (``genome/layout.py``) is computed
once. Its result, its near-optima, each single backend and greedy partitions are the first population. These seeds are
made one by one (``search/evolution/seeds.py``) and measured while the program works on the next. The first is a
single backend that is known to be correct; where matches differ in error every single engine follows, the fastest
families first. They are measured whatever their prediction.
"""
