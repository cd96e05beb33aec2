from collage_evo.backends.base import YES
import os
def judge(graph,node): return YES
