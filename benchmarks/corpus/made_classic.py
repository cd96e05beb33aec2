"""Pipelines of scikit-learn as skl2onnx writes them: trees, kernels, text, probabilities as an array and as a map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import skl2onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn import cluster, ensemble, feature_extraction, linear_model, neural_network, pipeline, preprocessing, svm

from corpus.entry import Draw, normal
from corpus.made import Made

ROWS, FEATURES = 200, 12
TABLE = {"X": normal(5, FEATURES)}


def models() -> Iterator[Made]:
    """Every pipeline of this module."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)
    scaled, numbers = pipeline.make_pipeline, FloatTensorType([None, FEATURES])
    for name, learner in (
        ("forest", ensemble.RandomForestClassifier(20, max_depth=6, random_state=0)),
        ("boosting", ensemble.GradientBoostingRegressor(n_estimators=20, random_state=0)),
        ("logistic", scaled(preprocessing.StandardScaler(), linear_model.LogisticRegression())),
        ("svm", scaled(preprocessing.StandardScaler(), svm.SVC(random_state=0))),
        ("perceptron", scaled(preprocessing.StandardScaler(), neural_network.MLPClassifier((32,), random_state=0))),
        ("kmeans", cluster.KMeans(5, random_state=0)),
    ):
        yield Made(f"sklearn-{name}", _source(), _save(learner.fit(x, y), numbers, False), TABLE)
    mapped = linear_model.LogisticRegression().fit(x, y)
    yield Made("sklearn-logistic-map", _source(), _save(mapped, numbers, True), TABLE)
    yield from _strings(y)


def _strings(y: np.ndarray) -> Iterator[Made]:
    rng = np.random.default_rng(0)
    words = rng.choice(["red", "green", "blue"], (ROWS, 2)).astype(object)
    coded = pipeline.make_pipeline(
        preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False), linear_model.LogisticRegression()
    ).fit(words, y)
    colours: dict[str, Draw | np.ndarray] = {"X": words[:5]}
    yield Made("sklearn-categories", _source(), _save(coded, StringTensorType([None, 2]), False), colours)
    texts = np.array([" ".join(row) for row in words], dtype=object)
    read = pipeline.make_pipeline(
        feature_extraction.text.TfidfVectorizer(), linear_model.LogisticRegression()
    ).fit(texts, y)  # fmt: skip
    lines: dict[str, Draw | np.ndarray] = {"X": texts[:5, None]}
    yield Made("sklearn-text", _source(), _save(read, StringTensorType([None, 1]), False), lines)


def _save(learner: Any, kind: Any, as_map: bool) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        classifier = learner[-1] if isinstance(learner, pipeline.Pipeline) else learner
        options = {id(classifier): {"zipmap": as_map}} if hasattr(classifier, "classes_") else None
        onnx.save(skl2onnx.to_onnx(learner, initial_types=[("X", kind)], options=options, target_opset=17), path)

    return save


def _source() -> str:
    return f"skl2onnx {skl2onnx.__version__}"
