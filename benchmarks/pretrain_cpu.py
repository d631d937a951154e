"""Pretraining speed on a CPU: a small BERT in our loop and in a plain transformers loop, as ratios of one run.

    python -m benchmarks.pretrain_cpu [--corpus FILE|DIR] [--steps 5] [--rounds 5] [--save]

Two layers of hidden size 128, in float32, with and without dropout. Both start from the same weights and use the same
rows, masks and optimizer: ours as in `regard pretrain`; BertForPreTraining with rows padded to the longest, an
attention mask, and -100 for positions without a target. Its batches are prepared beforehand, ours in the loop. The
losses show that both do the same work. The corpus is a text, from which a vocabulary is trained, or the folder of a
built corpus; default: the held-out text next to the project.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from benchmarks.pretrain_speed import CONFIGS, OURS, PEER, TrainStep, create_trainer, regard_step
from benchmarks.timing import best_times, describe_machine, save_results
from regard.checkpoints import loading
from regard.data.masking import IGNORE_INDEX
from regard.events import drain
from regard.training.optimizer import parameter_groups
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.corpus import open_dataset, prepare
from regard.training.recipes.pretraining.objectives import PretrainingDataset
from regard.training.trainer import Trainer

TEXT = Path(__file__).resolve().parents[2] / "shared" / "data" / "corpus" / "heldout.txt.xz"
DROPOUTS = (0.0, 0.1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--corpus", default=str(TEXT), metavar="FILE|DIR", help="text file, or folder of a built corpus"
    )
    parser.add_argument("--steps", type=int, default=5, help="steps per round")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds per implementation")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/pretrain_cpu.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        drain(prepare(small_bert_config(), [options.corpus], Path(scratch)))
        dataset = open_dataset(small_bert_config(), [options.corpus], Path(scratch), held_out=False)
        print(f"best of {options.rounds} rounds of {options.steps} steps each, alternating, {describe_machine()}")
        results: dict[str, Any] = {}
        for dropout in DROPOUTS:
            rows = compare(small_bert_config(dropout), dataset, steps=options.steps, rounds=options.rounds)
            ratio = rows[OURS]["steps_per_second"] / rows[PEER]["steps_per_second"]
            for name, row in rows.items():
                print(f"dropout {dropout}  {name:<13}{row['steps_per_second']:7.2f} steps/s   loss {row['loss']:.4f}")
            print(f"dropout {dropout}  ratio {ratio:.2f}")
            results[f"dropout {dropout}"] = {**rows, "ratio": round(ratio, 3)}
    if options.save:
        summary = {"threads": torch.get_num_threads(), "vocabulary": dataset.tokenizer.size}
        print(save_results("pretrain_cpu", summary | {"batch": small_bert_config().data.tokens_per_batch} | results))


def small_bert_config(dropout: float = 0.0) -> PretrainingConfig:
    """The configuration of a small BERT with NSP, AdamW and a constant learning rate."""
    overrides = [f"model.dropout={dropout}", f"model.attention_dropout={dropout}", "objective.sentence_pairs=next"]
    overrides += ["optimizer.name=adamw", "optimizer.learning_rate=5e-4"]
    overrides += [
        "schedule.budget=",
        "schedule.max_steps=1000000",
        "schedule.lr_scheduler_type=constant",
        "schedule.warmup_ratio=0",
    ]
    return PretrainingConfig.read(CONFIGS / "bert-tiny.toml", family="bert", overrides=overrides)


def compare(
    config: PretrainingConfig, dataset: PretrainingDataset, *, steps: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Steps per second of each implementation in its best round, and the loss of its last step."""
    cpu = torch.device("cpu")
    implementations = {
        OURS: regard_step(create_trainer(config, dataset, cpu)),
        PEER: transformers_step(create_trainer(config, dataset, cpu), count=steps * (rounds + 1)),
    }
    losses: dict[str, float] = {}

    def repeat(name: str, step: TrainStep) -> Callable[[], None]:
        def run_steps() -> None:
            for _ in range(steps):
                loss = step()
            losses[name] = round(loss.item(), 4)

        return run_steps

    best = best_times({name: repeat(name, step) for name, step in implementations.items()}, rounds=rounds)
    return {name: {"steps_per_second": round(steps / best[name], 3), "loss": losses[name]} for name in implementations}


def transformers_step(trainer: Trainer, *, count: int) -> TrainStep:
    """At most `count` steps of a plain loop, with the initial weights and batches of `trainer`."""
    model = _transformers_model(trainer).train()
    padding = trainer.recipe.dataset.tokenizer.pad_token_id or 0
    batches = iter([to_transformers_batch(inputs, padding) for (inputs,) in islice(trainer._batches(0), count)])
    settings = trainer.recipe.config.optimizer
    groups = parameter_groups(model, weight_decay=settings.weight_decay)
    optimizer = torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=settings.adam_betas, eps=settings.adam_epsilon, fused=True
    )

    def step() -> Tensor:
        loss: Tensor = model(**next(batches)).loss
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _transformers_model(trainer: Trainer) -> Any:
    import transformers

    library: Any = transformers  # mostly untyped
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        loading.save(trainer.model, folder)
        return library.BertForPreTraining.from_pretrained(folder)


def to_transformers_batch(inputs: Mapping[str, Tensor], padding: int) -> dict[str, Tensor]:
    """A packed micro-batch in transformers' format, one row per sequence, without filler tokens."""
    next_sentence = inputs["labels"][inputs["labels"] != IGNORE_INDEX]
    sizes = inputs["starts"][: len(next_sentence) + 1].diff().tolist()
    ids = inputs["ids"].long()
    labels = torch.full_like(ids, IGNORE_INDEX)
    labels[inputs["masked_positions"]] = inputs["targets"]

    def pad(values: Tensor, padding_value: int) -> Tensor:
        return pad_sequence(
            list(torch.split(values[: sum(sizes)], sizes)), batch_first=True, padding_value=padding_value
        )

    return {
        "input_ids": pad(ids, padding),
        "attention_mask": pad(torch.ones_like(ids), 0),
        "token_type_ids": pad(inputs["segments"].long(), 0),
        "labels": pad(labels, IGNORE_INDEX),
        "next_sentence_label": next_sentence,
    }


if __name__ == "__main__":
    main()
