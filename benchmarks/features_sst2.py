"""What a pretrained model knows without fine-tuning: logistic regression on its vectors of 2,000 SST-2 sentences.

    python -m benchmarks.features_sst2 MODEL [--data DIR] [--device auto] [--json]

The first 2,000 rows of DIR/train.tsv, the last layer pooled by mean and by [CLS], and the mean accuracy over 20 random
splits into three quarters to learn from and one to be judged on.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.finetune_sst2 import SST2, read_rows
from regard import Embedder

ROWS = 2000
SPLITS = 20
POOLINGS = ("mean", "cls")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args(arguments)
    accuracy = accuracies(options.model, options.data, device=options.device)
    if options.as_json:
        rounded = {pooling: round(value, 4) for pooling, value in accuracy.items()}
        print(json.dumps({"model": options.model, "rows": ROWS, "splits": SPLITS, "accuracy": rounded}))
        return
    print(f"{ROWS} rows, mean accuracy over {SPLITS} splits")
    for pooling, value in accuracy.items():
        print(f"{pooling:<6}{value:.4f}")


def accuracies(model: str | os.PathLike[str], data: Path, *, device: str) -> dict[str, float]:
    """The accuracy for each pooling."""
    rows = read_rows(data / "train.tsv")[:ROWS]
    texts, labels = [row.text for row in rows], np.array([str(row.label) for row in rows])
    found = {}
    for pooling in POOLINGS:
        embedder = Embedder(os.fspath(model), layers=-1, pooling=pooling, device=device)
        found[pooling] = split_accuracy(embedder.fit_transform(texts), labels)
    return found


def split_accuracy(vectors: Any, labels: Any) -> float:
    """The mean accuracy of logistic regression over the splits 0, 1, 2 and so on."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    found = []
    for split in range(SPLITS):
        learn, judge, learn_labels, judge_labels = train_test_split(vectors, labels, test_size=0.25, random_state=split)
        found.append(LogisticRegression(max_iter=1000).fit(learn, learn_labels).score(judge, judge_labels))
    return float(np.mean(found))


if __name__ == "__main__":
    main()
