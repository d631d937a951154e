"""Fine-tuning speed: SST-2 with `regard train` and with transformers' Trainer, as a ratio of one run.

    python -m benchmarks.finetune_speed MODEL [--rows 0] [--rounds 2] [--batch 32] [--device cpu] [--data DIR] [--save]

One epoch of DIR/train.tsv, or of its first rows, from the same weights, texts truncated to 128 tokens, AdamW with
warmup and linear decay, without adversarial perturbations; in float32 on a CPU, under bf16 autocast on a GPU. The
Trainer pads each batch to its longest text, as its default collator does.
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
from regard.device import choose_device, supports_bf16, synchronize
from regard.events import drain
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import TextClassification
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.recipe import FineTuningRecipe
from regard.training.trainer import Trainer

OURS, PEER = "regard", "transformers"
MAX_LENGTH, LEARNING_RATE = 128, 5e-5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="model folder or name")
    parser.add_argument("--rows", type=int, default=0, help="rows of the training data; 0 for all")
    parser.add_argument("--rounds", type=int, default=2, help="timed rounds per implementation")
    parser.add_argument("--batch", type=int, default=32, help="batch size")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--data", type=Path, default=SST2, metavar="DIR", help="folder with train.tsv")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write benchmarks/results/finetune_speed.json, on a GPU finetune_speed-cuda.json",
    )
    options = parser.parse_args(arguments)
    device = choose_device(options.device)
    results = measure(
        options.model, data=options.data, rows=options.rows, batch=options.batch, rounds=options.rounds, device=device
    )
    if options.save:
        print(save_results("finetune_speed" if device.type == "cpu" else f"finetune_speed-{device.type}", results))


def measure(
    model: str, *, data: Path = SST2, rows: int, batch: int, rounds: int, device: torch.device
) -> dict[str, Any]:
    """Seconds per epoch of both, and the ratio of ours to the Trainer's."""
    examples = read_text_examples(data / "train.tsv", task="classify", labeled=True).examples
    examples = examples[: rows or len(examples)]
    implementations = {OURS: regard_epoch(model, examples, batch, device)}
    try:
        implementations[PEER] = transformers_epoch(model, examples, batch, device)
    except ImportError as error:
        print(f"skipped: {PEER} ({error})")
    seconds = best_times(implementations, rounds=rounds)
    print(f"{len(examples):,} texts, best of {rounds} alternating rounds, {describe_machine()}")
    for name, duration in seconds.items():
        print(f"{name:<14}{duration:8.1f} s per epoch  {len(examples) / duration:7.1f} texts/s")
    ratio = round(seconds[OURS] / seconds[PEER], 3) if PEER in seconds else None
    if ratio is not None:
        print(f"time ratio {OURS} / {PEER}: {ratio:.3f}")
    results: dict[str, Any] = {"model": model, "texts": len(examples), "batch": batch, "device": device.type}
    results |= {"threads": torch.get_num_threads(), "seconds": {n: round(s, 3) for n, s in seconds.items()}}
    return results | {"ratio": ratio}


def regard_epoch(folder: str, examples: list[Any], batch: int, device: torch.device) -> Callable[[], None]:
    encoder, tokenizer = regard.load(folder)
    assert tokenizer is not None
    task = TextClassification.from_examples(examples)
    model = EncoderWithHead.from_encoder(encoder, task)
    items = task.preprocess(examples, FineTunedModel(task, model, tokenizer, MAX_LENGTH).input_builder)
    overrides = ["training.num_epochs=1", f"training.batch_size={batch}", f"training.learning_rate={LEARNING_RATE}"]
    config = FineTuningConfig.load(overrides=[*overrides, "training.adversarial_epsilon=0"])

    def train_epoch() -> None:
        recipe = FineTuningRecipe(task, items, config, new_model=lambda seed: copy.deepcopy(model))
        drain(Trainer(recipe, seed=0, device=device).train())
        synchronize(device)

    return train_epoch


def transformers_epoch(folder: str, examples: list[Any], batch: int, device: torch.device) -> Callable[[], None]:
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
                use_cpu=device.type == "cpu",
                bf16=supports_bf16(device),
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
            synchronize(device)

    return train_epoch


if __name__ == "__main__":
    main()
