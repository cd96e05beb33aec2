"""Libraries that run on the CPU and on a GPU: one backend for users, made of a class for each device.

A library's class for the CPU (``backends/NAME/``) knows no other device, and the one for a GPU (``backends/cuda/``)
knows that device only. A module here joins the two under the library's name.
"""
