"""Measure the baselines of the registry: one model for everyone's rows against one per silo.

    python scripts/measure_baselines.py flights [another ...]

Logistic, multinomial logistic or ridge regression of scikit-learn at their default penalty, 30 % of every silo's
rows held out with seed 0. A silo whose training rows are all of one class predicts the class frequencies with one
pseudo-row per class.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from fedual import data


def fit(task: str, x: np.ndarray, y: np.ndarray, classes: int):
    """A function from features to predictions: shape `(n,)` for regression, else probabilities `(n, classes)`."""
    if task == "regression":
        return Ridge().fit(x, y).predict
    present = np.unique(y).astype(int)
    if len(present) == 1:
        frequencies = (np.bincount(y.astype(int), minlength=classes) + 1) / (len(y) + classes)
        return lambda new: np.tile(frequencies, (len(new), 1))
    model = LogisticRegression(max_iter=5000).fit(x, y)

    def probabilities(new: np.ndarray) -> np.ndarray:
        out = np.full((len(new), classes), 1e-6)  # a class that a silo has never seen
        out[:, present] = model.predict_proba(new)
        return out / out.sum(axis=1, keepdims=True)

    return probabilities


def row_losses(task: str, y: np.ndarray, prediction: np.ndarray) -> np.ndarray:
    """Squared error or log-loss of every row, shape `(n,)`."""
    if task == "regression":
        return (y - prediction) ** 2
    return -np.log(prediction[np.arange(len(y)), y.astype(int)])


def metrics(task: str, y: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    """The metrics of the registry over all held-out rows."""
    if task == "regression":
        return {"r2": 1 - np.mean((y - prediction) ** 2) / np.var(y)}
    if task == "binary":
        return {"auc": roc_auc_score(y, prediction[:, 1]), "log_loss": row_losses(task, y, prediction).mean()}
    return {"accuracy": np.mean(prediction.argmax(axis=1) == y), "log_loss": row_losses(task, y, prediction).mean()}


def measure(loaded: data.Dataset) -> list[data.Baseline]:
    """The baselines of one data set, rounded as the registry keeps them."""
    train, test = loaded.clients.split(0.3, seed=0)
    task = loaded.entry.task
    classes = 0 if task == "regression" else int(max(y.max() for y in loaded.clients.targets)) + 1
    flat = [x.reshape(len(x), -1) for x in train.features]
    together = fit(task, np.concatenate(flat), np.concatenate(train.targets), classes)
    own = dict(zip(train.names, zip(flat, train.targets, strict=True), strict=True))
    pooled, alone = [], []
    for site, x in zip(test.names, test.features, strict=True):
        x = x.reshape(len(x), -1)
        pooled.append(together(x))
        alone.append(fit(task, *own[site], classes)(x))
    gaining = sum(
        bool(row_losses(task, y, p).mean() < row_losses(task, y, a).mean())
        for y, p, a in zip(test.targets, pooled, alone, strict=True)
    )
    y = np.concatenate(test.targets)
    both = [metrics(task, y, np.concatenate(predictions)) for predictions in (pooled, alone)]
    return [
        data.Baseline(metric, round(float(both[0][metric]), 3), round(float(both[1][metric]), 3), gaining, len(test))
        for metric in both[0]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--path", help="folder with the source's files, where they are not found by themselves")
    arguments = parser.parse_args()
    for name in arguments.names:
        loaded = data.load(name, arguments.path)
        clients = loaded.clients
        shape = clients.features[0].shape[1:]
        print(f"{name}: {len(clients)} silos of {clients.sizes.min()} to {clients.sizes.max()} rows, ", end="")
        print(f"{clients.sizes.sum()} rows, features {shape}")
        for baseline in measure(loaded):
            print(f"    {baseline},", flush=True)


if __name__ == "__main__":
    main()
