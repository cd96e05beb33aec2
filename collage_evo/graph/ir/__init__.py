"""Graphs of nodes and tensors, and what follows from them alone: kinds, windows, memory, a bound on the time.

A tensor's element type, its value as an array, and the weights of models of any size are here too. Nothing in this
package runs a model.
"""
