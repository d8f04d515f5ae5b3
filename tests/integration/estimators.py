"""Estimators for scikit-learn's searches, and what joblib's tasks do.  Imported in workers."""

from __future__ import annotations

import os
from math import sqrt
from typing import Any

import joblib
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression


class Fragile(ClassifierMixin, BaseEstimator):
    """A logistic regression that ends its process if it is told to."""

    def __init__(self, C: float = 1.0, crash: bool = False) -> None:
        self.C, self.crash = C, crash

    def fit(self, X: Any, y: Any) -> Fragile:
        if self.crash:
            os.abort()
        self.model_ = LogisticRegression(C=self.C, max_iter=500).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)


def nested(count: int) -> tuple[int, list[float], set[int]]:
    """Run a Parallel of its own: threads of this process."""
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(_root)(n) for n in range(count))
    return os.getpid(), [root for root, _ in found], {pid for _, pid in found}


def _root(n: int) -> tuple[float, int]:
    return sqrt(n), os.getpid()


def variable(name: str) -> str | None:
    return os.environ.get(name)
