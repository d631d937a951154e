"""Pretraining speed on one GPU: BERT base and GPT-2 small against transformers, as ratios of one run.

    python -m benchmarks.pretrain_speed --corpus DIR [--setups bert128 bert512 gpt2] [--seconds 8] [--no-peers]
                                        [--device cuda] [--tiny] [--save NAME]

Ours is `regard pretrain` on the folder of a built corpus: rows are cut by a thread, copied, masked and trained on. The
peer is BertForPreTraining or GPT2LMHeadModel in a plain loop over one batch of random ids that is already on the GPU.
Both have the same shape and number of rows, are compiled, and use bfloat16, SDPA, dropout 0.1, gradient clipping and
fused AdamW. Model FLOPs utilization is relative to the measured speed of a large matrix product and counts the same
work for both. The implementations alternate; the best round counts. `--tiny` runs everything at a small scale.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import best_times, describe_machine, save_results
from regard.data.masking import IGNORE_INDEX
from regard.device import autocast_dtype, choose_device
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.corpus import open_dataset
from regard.training.recipes.pretraining.objectives import PretrainingDataset, objective_class
from regard.training.recipes.pretraining.recipe import LanguageModelRecipe
from regard.training.speed import peak_flops
from regard.training.trainer import Trainer

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
NOWHERE = Path("nowhere")  # the trainer is created but writes nothing
OURS, PEER = "regard", "transformers"
ROUNDS = 4
WARM_UP = 5  # steps: the first compiles, the following ones record CUDA graphs

TrainStep = Callable[[], Tensor]  # one training step; returns the loss


@dataclass(frozen=True)
class SpeedSetup:
    """A file in configs/, and the number and length of the rows per step."""

    family: str
    file: str
    rows: int
    length: int


SETUPS = {
    "bert128": SpeedSetup("bert", "bert-base.toml", rows=512, length=128),
    "bert512": SpeedSetup("bert", "bert-base.toml", rows=128, length=512),
    "gpt2": SpeedSetup("gpt", "gpt2-small.toml", rows=32, length=1024),
}
TINY = (
    "model.hidden_size=32",
    "model.num_hidden_layers=2",
    "model.num_attention_heads=2",
    "model.intermediate_size=64",
    "vocabulary.vocab_size=1",
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, metavar="DIR", help="folder of a built corpus")
    parser.add_argument(
        "--setups", nargs="+", choices=SETUPS, default=list(SETUPS), metavar="NAME", help=", ".join(SETUPS)
    )
    parser.add_argument("--seconds", type=float, default=8, help="measurement time per implementation")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="measure transformers as well"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="two layers and four short rows")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json after each setup")
    options = parser.parse_args(arguments)
    results: dict[str, dict[str, Any]] = {}
    settings = {"tiny": options.tiny, "seconds": options.seconds}
    device = choose_device(options.device)
    for name, result in measure(options.corpus, options.setups, device=device, peers=options.peers, **settings):
        results[name] = result
        if options.save:
            save_results(options.save, {**settings, "kinds": results})


def measure(
    corpus: str, setups: Sequence[str], *, device: torch.device, seconds: float, peers: bool, tiny: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each setup with its result."""
    warnings.filterwarnings("ignore")
    print(describe_machine(), flush=True)
    for name in setups:
        config = setup_config(SETUPS[name], tiny=tiny)
        dataset = open_corpus(config, corpus)
        yield name, compare(name, config, dataset, device=device, seconds=seconds, peers=peers)
        _reset_compiler()


def setup_config(setup: SpeedSetup, *, tiny: bool) -> PretrainingConfig:
    """One forward pass per batch, full rows, and the dropout of BERT and GPT-2."""
    rows, length = (4, 32) if tiny else (setup.rows, setup.length)
    overrides = [f"data.max_length={length}", f"data.tokens_per_batch={rows * length}", "data.tokens_per_micro_batch=0"]
    overrides += ["model.dropout=0.1", "model.attention_dropout=0.1", *(TINY if tiny else ())]
    overrides += ["objective.short_seq_prob=0"] if setup.family == "bert" else []
    return PretrainingConfig.read(CONFIGS / setup.file, family=setup.family, overrides=overrides)


def compare(
    setup: str,
    config: PretrainingConfig,
    dataset: PretrainingDataset,
    *,
    device: torch.device,
    seconds: float,
    peers: bool,
) -> dict[str, Any]:
    """Speed, memory and utilization of each implementation, printed as soon as measured."""
    vocabulary, tokens = dataset.tokenizer.size, config.data.tokens_per_batch
    factories: dict[str, Callable[[], TrainStep]] = {OURS: lambda: regard_step(create_trainer(config, dataset, device))}
    if peers:
        factories[PEER] = lambda: transformers_step(config, vocabulary, device)
    steps: dict[str, TrainStep] = {}
    rows: dict[str, dict[str, float]] = {}
    for name, factory in factories.items():
        begin = time.perf_counter()
        try:
            step, gib = warm_up(factory, device)
        except (ImportError, RuntimeError) as error:  # not installed, or out of memory
            if name == OURS:
                raise
            print(f"{setup} {name} skipped: {str(error)[:300]}", flush=True)
            continue
        steps[name] = step
        rows[name] = {"ready_seconds": round(time.perf_counter() - begin, 1), "gib": round(gib, 2)}
        print(f"{setup} {name}: ready in {rows[name]['ready_seconds']} s, {gib:.1f} GiB", flush=True)
    peak = peak_flops(device, autocast_dtype(config.run.precision, device) or torch.float32)
    for name, duration in seconds_per_step(steps, device, seconds=seconds).items():
        speed = tokens / duration
        utilization = speed * objective_class(config).flops_per_token(config, vocabulary) / peak
        rows[name] |= {"tokens_per_second": round(speed), "milliseconds": round(1000 * duration, 2)}
        rows[name] |= {"utilisation": round(utilization, 4)}
        throughput = f"{speed:,.0f} tokens/s, {1000 * duration:.2f} ms per step"
        print(f"{setup} {name}: {throughput}, {utilization:.1%} of {peak / 1e12:.1f} TFLOP/s", flush=True)
    result: dict[str, Any] = {"rows": tokens // config.data.max_length, "length": config.data.max_length}
    result |= {"vocabulary": vocabulary, "peak_tflops": round(peak / 1e12, 1), **rows}
    if PEER in rows:
        result["ratio"] = round(rows[OURS]["tokens_per_second"] / rows[PEER]["tokens_per_second"], 3)
        print(f"{setup} ratio: {result['ratio']}", flush=True)
    return result


def open_corpus(config: PretrainingConfig, corpus: str) -> PretrainingDataset:
    """Open the corpus of a folder or of a run. For a GPT the vocabulary is at least as large as GPT-2's."""
    dataset = open_dataset(PretrainingConfig(), [corpus], Path(corpus), held_out=False)
    if config.model.family == "bert":
        return dataset
    size = max(config.vocabulary.vocab_size, dataset.tokenizer.size)
    tokenizer: Any = SimpleNamespace(
        size=size, cls_token_id=None, sep_token_id=None, pad_token_id=None, bos_token_id=None, eos_token_id=None
    )
    return replace(dataset, tokenizer=tokenizer)


def create_trainer(config: PretrainingConfig, dataset: PretrainingDataset, device: torch.device) -> Trainer:
    """Create the trainer of `regard pretrain`, so that measurements match real use. It writes nothing."""
    return Trainer(LanguageModelRecipe(config, dataset, NOWHERE), device=device)


def regard_step(trainer: Trainer) -> TrainStep:
    steps = trainer._steps()
    return lambda: next(steps).losses["loss"]


def transformers_step(config: PretrainingConfig, vocabulary: int, device: torch.device) -> TrainStep:
    ids = torch.randint(
        vocabulary, (config.data.tokens_per_batch // config.data.max_length, config.data.max_length), device=device
    )
    inputs = {"input_ids": ids, "labels": ids}
    if config.model.family == "bert":
        masked = torch.rand(ids.shape, device=device) < config.objective.mlm_probability
        inputs["labels"] = torch.where(masked, ids, IGNORE_INDEX)
        inputs["next_sentence_label"] = torch.randint(2, (len(ids),), device=device)
    model = _transformers_model(config, vocabulary).to(device).train()
    if device.type == "cuda":
        model.compile()
    parameters = list(model.parameters())
    settings, dtype = config.optimizer, autocast_dtype(config.run.precision, device)
    optimizer = torch.optim.AdamW(
        parameters,
        lr=1e-4,
        betas=settings.adam_betas,
        eps=settings.adam_epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )

    def step() -> Tensor:
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            loss: Tensor = model(**inputs).loss
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _transformers_model(config: PretrainingConfig, vocabulary: int) -> Any:
    import transformers

    library: Any = transformers  # mostly untyped
    library.logging.set_verbosity_error()
    model = config.model
    # transformers' GPT-2 accepts these names as well.
    shape = {
        "vocab_size": vocabulary,
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads,
        "max_position_embeddings": model.max_position_embeddings,
        "attn_implementation": "sdpa",
    }
    if model.family == "bert":
        dropout = {"hidden_dropout_prob": model.dropout, "attention_probs_dropout_prob": model.attention_dropout}
        bert = library.BertConfig(**shape, **dropout, intermediate_size=model.intermediate_size)
        return library.BertForPreTraining(bert)
    dropout = {"resid_pdrop": model.dropout, "embd_pdrop": model.dropout, "attn_pdrop": model.attention_dropout}
    gpt = library.GPT2LMHeadModel(
        library.GPT2Config(**shape, **dropout, n_inner=model.intermediate_size, use_cache=False)
    )
    gpt.loss_type = "ForCausalLM"  # the default, but detecting it warns and breaks the compiled graph
    return gpt


def warm_up(factory: Callable[[], TrainStep], device: torch.device) -> tuple[TrainStep, float]:
    """Return a compiled and warmed-up step, and the peak memory of model and step in GiB (on a GPU)."""
    before = torch.cuda.memory_allocated()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    step = factory()
    _repeat(step, WARM_UP, device)
    return step, (torch.cuda.max_memory_allocated() - before) / 2**30


def seconds_per_step(steps: dict[str, TrainStep], device: torch.device, *, seconds: float) -> dict[str, float]:
    """Seconds per step of each implementation in its best round. All rounds of one take about `seconds` in total."""
    counts = {}
    for name, step in steps.items():
        begin = time.perf_counter()
        _repeat(step, 1, device)
        counts[name] = max(int(seconds / (ROUNDS + 1) / (time.perf_counter() - begin)), 1)
    rounds = {name: partial(_repeat, step, counts[name], device) for name, step in steps.items()}
    return {name: duration / counts[name] for name, duration in best_times(rounds, rounds=ROUNDS).items()}


def _repeat(step: TrainStep, count: int, device: torch.device) -> None:
    for _ in range(count):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _reset_compiler() -> None:
    """Otherwise a second shape of the same code would be compiled with dynamic shapes."""
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
