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

from benchmarks.finetune_sst2 import SST2, read_sst2
from regard import Embedder

ROWS = 2000
SPLITS = 20
POOLINGS = ("mean", "cls")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="model folder or name")
    parser.add_argument("--layer", type=int, default=-1, help="layer of the vectors; -1 for the last")
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR", help="folder with train.tsv")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
    options = parser.parse_args(arguments)
    accuracy = feature_accuracies(options.model, options.data, layer=options.layer, device=options.device)
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


def feature_accuracies(model: str | os.PathLike[str], data: Path, *, layer: int = -1, device: str) -> dict[str, float]:
    """The accuracy for each pooling, with unscaled and scaled vectors."""
    examples = read_sst2(data / "train.tsv").examples[:ROWS]
    texts, labels = [example.text for example in examples], np.array([str(example.label) for example in examples])
    accuracy = {}
    for pooling in POOLINGS:
        vectors = Embedder(os.fspath(model), layers=layer, pooling=pooling, device=device).fit_transform(texts)
        accuracy[pooling] = split_accuracy(vectors, labels)
        accuracy[f"{pooling} scaled"] = split_accuracy(vectors, labels, scaled=True)
    return accuracy


def split_accuracy(vectors: Any, labels: Any, *, scaled: bool = False) -> float:
    """The mean accuracy of logistic regression over random splits."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    accuracies = []
    for split in range(SPLITS):
        train, test, train_labels, test_labels = train_test_split(vectors, labels, test_size=0.25, random_state=split)
        if scaled:
            scale = np.linalg.norm(train - train.mean(0), axis=1).mean()
            train, test = train / scale, test / scale
        accuracies.append(LogisticRegression(max_iter=1000).fit(train, train_labels).score(test, test_labels))
    return float(np.mean(accuracies))


if __name__ == "__main__":
    main()
