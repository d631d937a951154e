"""Frozen features: logistic regression on a pretrained model's vectors of 2,000 SST-2 sentences.

    python -m benchmarks.features_sst2 MODEL [--layer -1] [--data DIR] [--device auto] [--json]

The first 2,000 rows of DIR/train.tsv, one layer with mean and [CLS] pooling, and the mean accuracy over 20 random
splits into 75% training and 25% test data. The same is measured for vectors divided by their mean distance from the
centroid, because the effect of scikit-learn's regularization depends on the scale of the vectors.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.finetune_sst2 import SST2, rows
from regard import Embedder

ROWS = 2000
SPLITS = 20
POOLINGS = ("mean", "cls")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--layer", type=int, default=-1)
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args(arguments)
    accuracy = accuracies(options.model, options.data, layer=options.layer, device=options.device)
    if options.as_json:
        rounded = {pooling: round(value, 4) for pooling, value in accuracy.items()}
        print(
            json.dumps(
                {"model": options.model, "layer": options.layer, "rows": ROWS, "splits": SPLITS, "accuracy": rounded}
            )
        )
        return
    print(f"{ROWS} rows, mean accuracy over {SPLITS} splits")
    for pooling, value in accuracy.items():
        print(f"{pooling:<12} {value:.4f}")


def accuracies(model: str | os.PathLike[str], data: Path, *, layer: int = -1, device: str) -> dict[str, float]:
    """The accuracy for each pooling, with unscaled and scaled vectors."""
    examples = rows(data / "train.tsv").examples[:ROWS]
    texts, labels = [one.text for one in examples], np.array([str(one.label) for one in examples])
    found = {}
    for pooling in POOLINGS:
        vectors = Embedder(os.fspath(model), layers=layer, pooling=pooling, device=device).fit_transform(texts)
        found[pooling] = split_accuracy(vectors, labels)
        found[f"{pooling} scaled"] = split_accuracy(vectors, labels, scaled=True)
    return found


def split_accuracy(vectors: Any, labels: Any, *, scaled: bool = False) -> float:
    """The mean accuracy of logistic regression over the given number of splits."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    found = []
    for split in range(SPLITS):
        learn, judge, learn_labels, judge_labels = train_test_split(vectors, labels, test_size=0.25, random_state=split)
        if scaled:
            size = np.linalg.norm(learn - learn.mean(0), axis=1).mean()
            learn, judge = learn / size, judge / size
        found.append(LogisticRegression(max_iter=1000).fit(learn, learn_labels).score(judge, judge_labels))
    return float(np.mean(found))


if __name__ == "__main__":
    main()
