"""Training on few rows with default settings, beside scikit-learn's logistic regression on vectors of regard-embed.

    python -m benchmarks.few_rows [NAME ...] [--save]

Each run samples rows of a training set (`regard.fit` holds out a tenth of them), trains with the defaults, and scores
on a test set that neither sees. NAME is one of `RUNS`; results that exist already are kept for the others.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import regard
from benchmarks.tasks import DATA
from benchmarks.timing import RESULTS, save_results
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.tasks.metrics import label_scores, value_scores

RESULT = "few_rows"
TEST_ROWS = 500  # at most
Row = tuple[Any, ...]  # the texts and the label


@dataclass(frozen=True)
class FewRowsRun:
    data: str
    rows: int
    task: str = "classify"
    frozen: bool = False


RUNS = {
    "banking-48": FewRowsRun("banking", 48),
    "emotions-32": FewRowsRun("emotions", 32),
    "emotions-60": FewRowsRun("emotions", 60),
    "emotions-240": FewRowsRun("emotions", 240),
    "emotions-800": FewRowsRun("emotions", 800),
    "emotions-240-frozen": FewRowsRun("emotions", 240, frozen=True),
    "sms-60": FewRowsRun("sms", 60),
    "mrpc-300": FewRowsRun("mrpc", 300, "pair"),
    "stsb-300": FewRowsRun("stsb", 300, "regress"),
    "stsb-400-embed": FewRowsRun("stsb", 400, "embed"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*RUNS, []], default=[])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args(arguments)
    path = RESULTS / f"{RESULT}.json"
    results = json.loads(path.read_text())["runs"] if path.is_file() else {}
    for name in options.names or RUNS:
        run = RUNS[name]
        train, test = read(run.data)
        train, test = sample(train, run.rows, balanced=run.data in ("banking", "emotions")), test[:TEST_ROWS]
        started = time.monotonic()
        result = train_embedder(train, test) if run.task == "embed" else fine_tune(run, train, test)
        results[name] = {**result, "rows": len(train), "test rows": len(test), "seconds": time.monotonic() - started}
        print(name, json.dumps(results[name]), flush=True)
        if options.save:
            save_results(RESULT, {"runs": {key: results[key] for key in RUNS if key in results}})


def fine_tune(run: FewRowsRun, train: Sequence[Row], test: Sequence[Row]) -> dict[str, Any]:
    truth = [row[-1] for row in test]
    model = regard.fit(list(train), task=run.task, frozen=run.frozen or None, device="cpu")
    inputs = [row[0] if len(row) == 2 else tuple(row[:-1]) for row in test]
    predicted = model.predict(inputs).to_dict()["predictions"]
    compared = model.report.baseline
    about = {"kept": compared.kept, "model": model.report.model, "folds": compared.folds}
    about |= {f"{name}, chosen by": scores[compared.metric] for name, scores in compared.scores.items()}
    if run.task == "regress":
        cosines = [float(u @ v) for u, v in zip(*(embed([row[i] for row in test]) for i in (0, 1)), strict=True)]
        reference = value_scores(truth, cosines)["spearman"]
        return {"spearman": value_scores(truth, [one["value"] for one in predicted])["spearman"]} | {
            "cosine of regard-embed": reference,
            **about,
        }
    scores = label_scores(truth, [one["label"] for one in predicted])
    result = {"accuracy": scores["accuracy"], "mcc": scores["mcc"]}
    if run.task == "classify":
        result["logistic regression"] = logistic_regression(train, test)
    return {**result, **about}


def logistic_regression(train: Sequence[Row], test: Sequence[Row]) -> float:
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(max_iter=1000).fit(embed([row[0] for row in train]), [row[1] for row in train])
    return 100 * float(found.score(embed([row[0] for row in test]), [row[1] for row in test]))


def train_embedder(train: Sequence[Row], test: Sequence[Row]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scored.tsv")
        path.write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in train), encoding="utf-8")
        report = regard.train_embedder(train=path, output=Path(folder, "model"), device="cpu")
        models = {"spearman": str(Path(folder, "model")), "untouched regard-embed": DEFAULT_EMBEDDING_MODEL}
        result: dict[str, Any] = {"kept epochs": report.outcome.epochs}
        for name, model in models.items():
            first, second = (embed([row[i] for row in test], model) for i in (0, 1))
            result[name] = value_scores([row[2] for row in test], (first * second).sum(1).tolist())["spearman"]
        return result


def embed(texts: Sequence[str], model: str = DEFAULT_EMBEDDING_MODEL) -> np.ndarray[Any, Any]:
    return regard.Embedder(model, normalize=True, device="cpu").transform(list(texts))


def read(name: str) -> tuple[list[Row], list[Row]]:
    """The rows of a data set: train and test."""
    if name == "banking":
        kept = set(random.Random(5).sample(sorted({row[1] for row in _banking("train")}), 6))
        train, test = ([row for row in _banking(part) if row[1] in kept] for part in ("train", "test"))
    elif name == "emotions":
        train, test = _emotions("train"), _emotions("test")
    elif name == "sms":
        lines = (DATA / "sms-spam" / "SMSSpamCollection").read_text(encoding="utf-8").splitlines()
        rows: list[Row] = [(text, label) for label, text in (line.split("\t", 1) for line in lines)]
        random.Random(0).shuffle(rows)
        return rows[1500:], rows[:1500]
    elif name == "mrpc":
        train, test = _mrpc("train"), _mrpc("validation")
    else:
        train, test = _stsb("train"), _stsb("dev")
    random.Random(0).shuffle(test)
    return train, test


def sample(rows: Sequence[Row], count: int, *, balanced: bool, seed: int = 0) -> list[Row]:
    generator = random.Random(seed)
    if not balanced:
        return generator.sample(list(rows), count)
    by_label: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        by_label[row[-1]].append(row)
    chosen = [row for label in sorted(by_label) for row in generator.sample(by_label[label], count // len(by_label))]
    generator.shuffle(chosen)
    return chosen


def _banking(part: str) -> list[Row]:
    with lzma.open(DATA / "banking77" / f"{part}.csv.xz", "rt", encoding="utf-8") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def _emotions(part: str) -> list[Row]:
    names = (DATA / "goemotions" / "labels.txt").read_text().split()
    kept = {str(names.index(name)): name for name in ("anger", "joy", "sadness", "curiosity")}
    with lzma.open(DATA / "goemotions" / f"{part}.tsv.xz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [(row[0], kept[row[1]]) for row in rows if row[1] in kept]


def _mrpc(part: str) -> list[Row]:
    with (DATA / "mrpc" / f"{part}.tsv").open(encoding="utf-8") as file:
        return [(row["sentence1"], row["sentence2"], row["label"]) for row in csv.DictReader(file, delimiter="\t")]


def _stsb(part: str) -> list[Row]:
    rows = [line.split("\t") for line in (DATA / "stsb" / f"sts-{part}.csv").read_text("utf-8").splitlines()]
    return [(row[5], row[6], float(row[4])) for row in rows]


if __name__ == "__main__":
    main()
