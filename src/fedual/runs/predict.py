"""Predictions for new tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from fedual.runs.load import Model

__all__ = ["predict_files"]


def predict_files(model: Model, files: Sequence[str | Path]) -> pl.DataFrame:
    """Code tables as the training tables were coded, and predict every row.

    Args:
        model: trained on tables, so that it knows its transform.
        files: with the columns of the training files; the target may be missing, an exposure or offset may not.

    Returns:
        Columns `site`, `row` (of the file, from 1), and `prediction`: the mean, of a count at the row's exposure; with
        classes the most probable label and, per label, `probability of ...`.

    Raises:
        ValueError: the model was trained on arrays, or a table does not fit; file, column and row are named.
    """
    if model.transform is None:
        raise ValueError(
            "this model was trained on numbers, not on tables, so there is no coding of columns to repeat; use "
            "fedual.runs.load_model(...).predict(X) with X coded as in training."
        )
    from fedual import tables

    transform = tables.Transform.from_dict(model.transform)
    parts = []
    for table in tables.read_sites(files, transform.declared.site):
        x = transform.features(table)
        if transform.declared.offset is not None:
            x = np.column_stack([x, transform.offset(table)])
        predicted = model.predict(x)
        columns: dict[str, object] = {"site": [table.site] * len(table), "row": table.rows}
        if transform.classes:
            chances = predicted if predicted.ndim == 2 else [[1 - p, p] for p in predicted]
            frame = pl.DataFrame(chances, schema=[f"probability of {c}" for c in transform.classes], orient="row")
            best = frame.to_numpy().argmax(axis=1)
            columns |= {"prediction": [transform.classes[b] for b in best], **frame.to_dict()}
        else:
            columns["prediction"] = predicted
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts)
