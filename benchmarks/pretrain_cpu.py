"""How fast pretraining is on a CPU: a small BERT in our loop and in a plain one of transformers', as ratios of one run.

    python -m benchmarks.pretrain_cpu [--corpus FILE|DIR] [--steps 5] [--rounds 5] [--keep]

Two layers of width 128, in float32, with and without dropout. Both start with the same weights and are given the same
rows, masks and optimizer: ours as `regard pretrain` runs; BertForPreTraining as its users do it, each row padded to the
longest with an attention mask, and -100 where nothing is asked. Its batches are made beforehand, ours in the loop. That
both do the same work shows in their losses. The corpus is text, of which a vocabulary is trained, or the folder of a
built one; default: the held-out text beside the project.
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

from benchmarks.pretrain_speed import CONFIGS, OURS, PEER, Work, begun, ours
from benchmarks.race import keep, machine, race
from regard.checkpoints import loading
from regard.data.masking import IGNORED
from regard.training.optimizer import groups
from regard.training.pretraining.config import Config
from regard.training.pretraining.prepare import Material, open_material, prepare
from regard.training.pretraining.trainer import Trainer

TEXT = Path(__file__).resolve().parents[2] / "shared" / "data" / "corpus" / "heldout.txt.xz"
DROPOUTS = (0.0, 0.1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default=str(TEXT), metavar="FILE|DIR")
    parser.add_argument("--steps", type=int, default=5, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/pretrain_cpu.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        prepare(settings(), [options.corpus], Path(scratch), say=lambda text: None)
        text = open_material(settings(), [options.corpus], Path(scratch), held_out=False)
        print(f"best of {options.rounds} rounds of {options.steps} steps in turns, {machine()}")
        found: dict[str, Any] = {}
        for dropout in DROPOUTS:
            rows = compared(settings(dropout), text, steps=options.steps, rounds=options.rounds)
            ratio = rows[OURS]["steps_per_second"] / rows[PEER]["steps_per_second"]
            for name, row in rows.items():
                print(f"dropout {dropout}  {name:<13}{row['steps_per_second']:7.2f} steps/s   loss {row['loss']:.4f}")
            print(f"dropout {dropout}  ratio {ratio:.2f}")
            found[f"dropout {dropout}"] = {**rows, "ratio": round(ratio, 3)}
    if options.keep:
        figures = {"threads": torch.get_num_threads(), "vocabulary": text.tokenizer.size}
        print(keep("pretrain_cpu", figures | {"batch": settings().data.tokens_per_batch} | found))


def settings(dropout: float = 0.0) -> Config:
    """The tiny BERT, taught pairs too, with AdamW at one rate."""
    overrides = [f"model.dropout={dropout}", f"model.attention_dropout={dropout}", "objective.sentence_pairs=next"]
    overrides += ["optimizer.name=adamw", "optimizer.learning_rate=5e-4"]
    overrides += [
        "schedule.budget=",
        "schedule.max_steps=1000000",
        "schedule.lr_scheduler_type=constant",
        "schedule.warmup_ratio=0",
    ]
    return Config.read(CONFIGS / "bert-tiny.toml", family="bert", overrides=overrides)


def compared(config: Config, text: Material, *, steps: int, rounds: int) -> dict[str, dict[str, float]]:
    """Each one's steps a second in its best round, and the loss of its last step."""
    cpu = torch.device("cpu")
    contestants = {
        OURS: ours(begun(config, text, cpu)),
        PEER: theirs(begun(config, text, cpu), count=steps * (rounds + 1)),
    }
    losses: dict[str, float] = {}

    def several(name: str, step: Work) -> Callable[[], None]:
        def work() -> None:
            for _ in range(steps):
                loss = step()
            losses[name] = round(loss.item(), 4)

        return work

    best = race({name: several(name, step) for name, step in contestants.items()}, rounds=rounds)
    return {name: {"steps_per_second": round(steps / best[name], 3), "loss": losses[name]} for name in contestants}


def theirs(run: Trainer, *, count: int) -> Work:
    """At most `count` steps of a plain loop, from the weights and with the batches that `run` would begin with."""
    model = _peer(run).train()
    padding = run.material.tokenizer.pad or 0
    batches = iter([padded(inputs, padding) for (inputs,) in islice(run._batches(0), count)])
    chosen = run.config.optimizer
    decaying = groups(model, weight_decay=chosen.weight_decay)
    optimizer = torch.optim.AdamW(
        decaying, lr=chosen.learning_rate, betas=chosen.adam_betas, eps=chosen.adam_epsilon, fused=True
    )

    def step() -> Tensor:
        loss: Tensor = model(**next(batches)).loss
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), chosen.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _peer(run: Trainer) -> Any:
    import transformers

    library: Any = transformers  # much of it has no types
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        loading.save(run.model, folder)
        return library.BertForPreTraining.from_pretrained(folder)


def padded(inputs: Mapping[str, Tensor], padding: int) -> dict[str, Tensor]:
    """A packed portion as transformers reads it, a row a sequence; what only fills the portion up is left out."""
    following = inputs["labels"][inputs["labels"] != IGNORED]
    sizes = inputs["starts"][: len(following) + 1].diff().tolist()
    ids = inputs["ids"].long()
    asked = torch.full_like(ids, IGNORED)
    asked[inputs["holes"]] = inputs["targets"]

    def rows(values: Tensor, filling: int) -> Tensor:
        return pad_sequence(list(torch.split(values[: sum(sizes)], sizes)), batch_first=True, padding_value=filling)

    return {
        "input_ids": rows(ids, padding),
        "attention_mask": rows(torch.ones_like(ids), 0),
        "token_type_ids": rows(inputs["segments"].long(), 0),
        "labels": rows(asked, IGNORED),
        "next_sentence_label": following,
    }


if __name__ == "__main__":
    main()
