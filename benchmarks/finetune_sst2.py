"""How well a pretrained BERT learns a task: fine-tuned on SST-2, its accuracy on the dev set for each seed.

    python -m benchmarks.finetune_sst2 MODEL [--data DIR] [--seeds 0 1 2] [--epochs 3] [--rate 1e-4] [--batch 32]
                                       [--device auto] [--keep NAME]

One recipe for every model, seed and device: all of DIR/train.tsv, a linear layer on the pooled [CLS], the dropout that
the model was pretrained with (one that never saw any loses 1.5 points by 0.1), AdamW with 10% warm-up and linear
decay to 0. A model without a pooler gets a new one. The accuracy is that of DIR/dev.tsv after
the last epoch, never of the best one. The result is one line of JSON; bf16 on a GPU, float32 on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from benchmarks.race import keep
from regard.data.batch import Batch, collate
from regard.data.files import open_text
from regard.device import choose
from regard.errors import InputError
from regard.models import Bert
from regard.models.bert import Pooler
from regard.nn import initial
from regard.text import Tokenizer
from regard.train.optimizer import build, set_rate
from regard.train.schedule import factor

SST2 = Path(__file__).resolve().parents[2] / "shared" / "data" / "sst2"
RATE, EPOCHS, BATCH = 1e-4, 3, 32
WEIGHT_DECAY = 0.01
WARMUP = 0.1
CLIP = 1.0
JUDGED_AT_ONCE = 256

Rows = Sequence[tuple[str, int]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--batch", type=int, default=BATCH, help="texts a step")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    train, dev = read_rows(options.data / "train.tsv"), read_rows(options.data / "dev.tsv")
    recipe = {"epochs": options.epochs, "rate": options.rate, "batch": options.batch}
    device = choose(options.device).type
    begin = time.perf_counter()
    accuracy: dict[int, float] = {}
    for seed in options.seeds:
        accuracy[seed] = finetune(options.model, train, dev, seed=seed, device=options.device, **recipe)
        print(f"seed {seed}: {accuracy[seed]:.4f}, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    figures = {
        "model": options.model,
        "train": len(train),
        "dev": len(dev),
        **recipe,
        "device": device,
        "accuracy": {str(seed): round(value, 4) for seed, value in accuracy.items()},
        "mean": round(sum(accuracy.values()) / len(accuracy), 4),
        "seconds": round(time.perf_counter() - begin, 1),
    }
    if options.keep:
        print(keep(options.keep, figures), file=sys.stderr)
    print(json.dumps(figures))


def read_rows(path: Path) -> list[tuple[str, int]]:
    """The sentences and labels of a file without a header: sentence, tab, 0 or 1."""
    rows = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            text, _, label = line.rpartition("\t")
            if not text.strip() or label not in ("0", "1"):
                raise InputError(f"{path} line {number}: expected a sentence, a tab and 0 or 1, got {line[:60]!r}")
            rows.append((text, int(label)))
    if not rows:
        raise InputError(f"{path} is empty; expected lines of a sentence, a tab and 0 or 1")
    return rows


def finetune(
    model_folder: str | os.PathLike[str],
    train: Rows,
    dev: Rows,
    *,
    seed: int,
    epochs: int,
    rate: float,
    batch: int,
    device: str,
) -> float:
    """The accuracy on `dev` after training on `train`. The seed decides the new weights, the dropout and the order."""
    place = choose(device)
    model, tokenizer = regard.load(model_folder)
    if not isinstance(model, Bert) or tokenizer is None:
        raise InputError(f"{model_folder}: expected a BERT with its tokenizer, got {type(model).__name__}")
    torch.manual_seed(seed)
    classifier = Classifier(model).to(place)
    texts = Encoded(train, tokenizer, model.config.positions)
    _fit(classifier, texts, seed=seed, epochs=epochs, rate=rate, size=batch)
    return _accuracy(classifier, Encoded(dev, tokenizer, model.config.positions))


class Classifier(nn.Module):
    """The pooled [CLS] of a BERT, and a new linear layer on it: two logits a text."""

    def __init__(self, encoder: Bert) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(encoder.config.dropout)
        self.output = nn.Linear(encoder.config.width, 2)
        initial.normal(self.output)
        pooler = encoder.pooler
        if pooler is None:
            pooler = Pooler(encoder.config.width)
            initial.normal(pooler)
        self.pooler = pooler

    def forward(self, batch: Batch) -> Tensor:
        device = self.output.weight.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            hidden = self.encoder(batch.ids, batch.layout)
            logits: Tensor = self.output(self.dropout(self.pooler(hidden, batch.layout)))
        return logits.float()


class Encoded:
    """Rows as token ids, cut to `limit`."""

    def __init__(self, rows: Rows, tokenizer: Tokenizer, limit: int) -> None:
        self.ids, _ = tokenizer.ids_batch([text for text, _ in rows], max_length=limit)
        self.labels = [label for _, label in rows]

    def batches(self, order: Sequence[int], size: int, device: torch.device) -> list[tuple[Batch, Tensor]]:
        """All batches with their labels, on the device before the first is used: then no step waits for the host.

        `size` neighbours of `order` make a batch. In it they lie by length: a CPU takes equal lengths at once.
        """
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        groups = [sorted(part, key=lambda place: len(self.ids[place])) for part in parts]
        return [
            (
                collate([self.ids[place] for place in group]).to(device),
                torch.tensor([self.labels[place] for place in group]).to(device),
            )
            for group in groups
        ]


def _fit(model: Classifier, data: Encoded, *, seed: int, epochs: int, rate: float, size: int) -> None:
    device = model.output.weight.device
    optimizers = build(model, name="adamw", rate=rate, betas=(0.9, 0.999), weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(seed)  # its own, so that every device sees the same order
    count = len(data.labels)
    steps, done = epochs * -(-count // size), 0
    model.train()
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).tolist()
        for batch, labels in data.batches(order, size, device):
            set_rate(optimizers, rate * factor(done / steps, warmup=WARMUP, shape="linear", floor=0.0))
            F.cross_entropy(model(batch), labels).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            done += 1


def _accuracy(model: Classifier, data: Encoded) -> float:
    device = model.output.weight.device
    right = torch.zeros((), dtype=torch.long, device=device)
    model.eval()
    with torch.inference_mode():
        for batch, labels in data.batches(range(len(data.labels)), JUDGED_AT_ONCE, device):
            right += (model(batch).argmax(-1) == labels).sum()
    return right.item() / len(data.labels)


if __name__ == "__main__":
    main()
