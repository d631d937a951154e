"""Fine-tuning speed on a CPU: SST-2 with `regard train` and with transformers' Trainer, as a ratio of one run.

    python -m benchmarks.finetune_speed MODEL [--rows 0] [--rounds 2] [--batch 32] [--data DIR] [--keep]

One epoch of DIR/train.tsv, or of its first rows, from the same weights, in float32, texts truncated to 128 tokens,
AdamW with warmup and linear decay. The Trainer pads each batch to its longest text, as its default collator does.
Tokenization is not timed; nothing is evaluated or saved. Contestants alternate; the best round counts.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.finetune_sst2 import SST2
from benchmarks.race import keep, machine, race
from regard.data.readers import read_text_examples
from regard.events import drain
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import TextClassification
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.trainer import FineTuner
from regard.training.stopping import Stop

OURS, PEER = "regard", "transformers"
LENGTH, RATE = 128, 5e-5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--rows", type=int, default=0, help="rows of the training data; 0 for all")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/finetune_speed.json")
    options = parser.parse_args(arguments)
    examples = read_text_examples(options.data / "train.tsv", task="classify", labeled=True).examples
    examples = examples[: options.rows or len(examples)]
    contestants = {
        OURS: ours(options.model, examples, options.batch),
        PEER: theirs(options.model, examples, options.batch),
    }
    seconds = race(contestants, rounds=options.rounds)
    ratio = seconds[OURS] / seconds[PEER]
    print(f"{len(examples):,} texts, best of {options.rounds} rounds in turn, {machine()}")
    for name, lasted in seconds.items():
        print(f"{name:<14}{lasted:8.1f} s an epoch  {len(examples) / lasted:7.1f} texts/s")
    print(f"time, ours over theirs: {ratio:.3f}")
    if options.keep:
        figures: dict[str, Any] = {"model": options.model, "texts": len(examples), "batch": options.batch}
        figures |= {"threads": torch.get_num_threads(), "seconds": {n: round(s, 1) for n, s in seconds.items()}}
        print(keep("finetune_speed", figures | {"ratio": round(ratio, 3)}))


def ours(folder: str, examples: list[Any], batch: int) -> Callable[[], None]:
    encoder, tokenizer = regard.load(folder)
    assert tokenizer is not None
    task = TextClassification.from_examples(examples)
    tuned = EncoderWithHead.from_encoder(encoder, task)
    items = task.preprocess(examples, FineTunedModel(task, tuned, tokenizer, LENGTH).input_builder)
    config = FineTuningConfig.load(
        overrides=["training.num_epochs=1", f"training.batch_size={batch}", f"training.learning_rate={RATE}"]
    )

    def work() -> None:
        drain(FineTuner(copy.deepcopy(tuned), task, items, config, seed=0, device=torch.device("cpu")).run(Stop()))

    return work


def theirs(folder: str, examples: list[Any], batch: int) -> Callable[[], None]:
    import transformers

    library: Any = transformers  # much of it has no types
    library.logging.set_verbosity_error()
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    labels = {label: number for number, label in enumerate(sorted({example.label for example in examples}))}
    rows = [
        {**tokenizer(example.text, truncation=True, max_length=LENGTH), "labels": labels[example.label]}
        for example in examples
    ]
    model = library.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(labels))

    def work() -> None:
        with tempfile.TemporaryDirectory() as scratch:
            settings = library.TrainingArguments(
                output_dir=scratch,
                num_train_epochs=1,
                per_device_train_batch_size=batch,
                learning_rate=RATE,
                warmup_steps=0.1,
                weight_decay=0.01,
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            )
            library.Trainer(
                model=copy.deepcopy(model),
                args=settings,
                train_dataset=rows,
                data_collator=library.DataCollatorWithPadding(tokenizer),
            ).train()

    return work


if __name__ == "__main__":
    main()
