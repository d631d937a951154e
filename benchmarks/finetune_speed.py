"""Fine-tuning speed on a CPU: SST-2 with `regard train` and with transformers' Trainer, as a ratio of one run.

    python -m benchmarks.finetune_speed MODEL [--rows 0] [--rounds 2] [--batch 32] [--data DIR] [--save]

One epoch of DIR/train.tsv, or of its first rows, from the same weights, in float32, texts truncated to 128 tokens,
AdamW with warmup and linear decay. The Trainer pads each batch to its longest text, as its default collator does.
Tokenization is not timed; nothing is evaluated or saved. The implementations alternate; the best round counts. Without
the extra `bench` only Regard is measured.
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
from benchmarks.timing import best_times, describe_machine, save_results
from regard.data.readers import read_text_examples
from regard.events import drain
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import TextClassification
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.trainer import FineTuner
from regard.training.stopping import Stop

OURS, PEER = "regard", "transformers"
MAX_LENGTH, LEARNING_RATE = 128, 5e-5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="model folder or name")
    parser.add_argument("--rows", type=int, default=0, help="rows of the training data; 0 for all")
    parser.add_argument("--rounds", type=int, default=2, help="timed rounds per implementation")
    parser.add_argument("--batch", type=int, default=32, help="batch size")
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR", help="folder with train.tsv")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/finetune_speed.json")
    options = parser.parse_args(arguments)
    examples = read_text_examples(options.data / "train.tsv", task="classify", labeled=True).examples
    examples = examples[: options.rows or len(examples)]
    implementations = {OURS: regard_epoch(options.model, examples, options.batch)}
    try:
        implementations[PEER] = transformers_epoch(options.model, examples, options.batch)
    except ImportError as error:
        print(f"skipped: {PEER} ({error})")
    seconds = best_times(implementations, rounds=options.rounds)
    print(f"{len(examples):,} texts, best of {options.rounds} alternating rounds, {describe_machine()}")
    for name, duration in seconds.items():
        print(f"{name:<14}{duration:8.1f} s per epoch  {len(examples) / duration:7.1f} texts/s")
    ratio = round(seconds[OURS] / seconds[PEER], 3) if PEER in seconds else None
    if ratio is not None:
        print(f"time ratio {OURS} / {PEER}: {ratio:.3f}")
    if options.save:
        results: dict[str, Any] = {"model": options.model, "texts": len(examples), "batch": options.batch}
        results |= {"threads": torch.get_num_threads(), "seconds": {n: round(s, 1) for n, s in seconds.items()}}
        print(save_results("finetune_speed", results | {"ratio": ratio}))


def regard_epoch(folder: str, examples: list[Any], batch: int) -> Callable[[], None]:
    encoder, tokenizer = regard.load(folder)
    assert tokenizer is not None
    task = TextClassification.from_examples(examples)
    model = EncoderWithHead.from_encoder(encoder, task)
    items = task.preprocess(examples, FineTunedModel(task, model, tokenizer, MAX_LENGTH).input_builder)
    config = FineTuningConfig.load(
        overrides=["training.num_epochs=1", f"training.batch_size={batch}", f"training.learning_rate={LEARNING_RATE}"]
    )

    def train_epoch() -> None:
        drain(FineTuner(copy.deepcopy(model), task, items, config, seed=0, device=torch.device("cpu")).run(Stop()))

    return train_epoch


def transformers_epoch(folder: str, examples: list[Any], batch: int) -> Callable[[], None]:
    import accelerate  # noqa: F401 (the Trainer needs it)
    import transformers

    library: Any = transformers  # mostly untyped
    library.logging.set_verbosity_error()
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    labels = {label: number for number, label in enumerate(sorted({example.label for example in examples}))}
    rows = [
        {**tokenizer(example.text, truncation=True, max_length=MAX_LENGTH), "labels": labels[example.label]}
        for example in examples
    ]
    model = library.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(labels))

    def train_epoch() -> None:
        with tempfile.TemporaryDirectory() as scratch:
            settings = library.TrainingArguments(
                output_dir=scratch,
                num_train_epochs=1,
                per_device_train_batch_size=batch,
                learning_rate=LEARNING_RATE,
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

    return train_epoch


if __name__ == "__main__":
    main()
