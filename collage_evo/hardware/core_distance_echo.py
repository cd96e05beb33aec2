"""Echo script that :class:`CoreDistance` starts: answers each change of a shared byte with the same change."""

import mmap
import os
import sys

TRIPS = 60
TIMEOUT_S = 10**6
"""Reads of the byte before giving up: the asking process may have been killed."""
QUESTION, ANSWER = 0, 128
"""Offsets of the two bytes, on separate cache lines."""


def serve(shared: mmap.mmap) -> None:
    """For every two bytes on standard input, go to the core of that number and answer ``TRIPS`` questions there."""
    question, answer = QUESTION, ANSWER
    while core := os.read(0, 2):
        os.sched_setaffinity(0, {int.from_bytes(core)})
        for number in range(1, TRIPS + 1):
            for _ in range(TIMEOUT_S):
                if shared[question] == number:
                    break
            shared[answer] = number


if __name__ == "__main__":
    serve(mmap.mmap(int(sys.argv[1]), mmap.PAGESIZE))
