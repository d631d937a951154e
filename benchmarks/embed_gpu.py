"""Embedding throughput on a GPU with BERT-base in bf16: strings in memory to vectors in memory.

    python -m benchmarks.embed_gpu [--count 8192] [--rounds 5] [--vocabulary FILE] [--sst2 FILE] [--squad FILE] [--save]

Weights are random, which takes the same time. Short texts have 4 to 66 tokens (log-normal, mean about 22), paragraphs 8
to 512 (mean about 160), made of words of the vocabulary; FILEs add SST-2 sentences and SQuAD paragraphs. Regard against
transformers in bf16 with batches of 256 texts, as they come and sorted by length, in alternating rounds. MFU: useful
floating-point operations, of real tokens, over those of a large matrix product in the same time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import best_times, describe_machine, save_results
from regard.inference.embedding.engine import EmbeddingEngine
from regard.models import Bert, BertConfig
from regard.text import Tokenizer

VOCABULARY = Path(__file__).resolve().parents[2] / "shared" / "data" / "vocab-bert-base-uncased" / "vocab.txt"
BATCH = 256


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=8192, help="number of texts")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds per engine")
    parser.add_argument("--vocabulary", type=Path, default=VOCABULARY, metavar="FILE", help="BERT's vocab.txt")
    parser.add_argument("--sst2", type=Path, metavar="FILE", help="TSV whose first column has sentences")
    parser.add_argument("--squad", type=Path, metavar="FILE", help="SQuAD's JSON")
    parser.add_argument("--no-peers", action="store_true", help="measure Regard only")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try it out")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/embed_gpu.json")
    options = parser.parse_args(arguments)
    tokenizer = Tokenizer.from_vocabulary(options.vocabulary)
    texts = workloads(tokenizer, options.count, sst2=options.sst2, squad=options.squad)
    peers = not options.no_peers
    device = torch.device(options.device)
    results = measure(texts, options.vocabulary, device=device, rounds=options.rounds, peers=peers)
    if options.save:
        print(save_results("embed_gpu", results))


def measure(
    texts_by_workload: Mapping[str, list[str]], vocabulary: Path, *, device: torch.device, rounds: int, peers: bool
) -> dict[str, Any]:
    """Texts per second and MFU by workload and engine, printed as soon as measured."""
    tokenizer = Tokenizer.from_vocabulary(vocabulary)
    model = Bert(BertConfig(), output_heads=()).eval().to(device)
    engine = EmbeddingEngine(model, tokenizer, device=device, max_length=512)
    peak = peak_flops(device)
    results: dict[str, Any] = {"peak_tflops": round(peak / 1e12, 1)}
    for name, texts in texts_by_workload.items():
        lengths = tokenizer.encode_ids(texts, max_length=512).lengths
        implementations: dict[str, Callable[[], Any]] = {"regard": lambda texts=texts: engine.embed(texts)}
        if peers:
            implementations |= transformers_engines(model, vocabulary, texts, device)
        implementations["tokenizing alone"] = lambda texts=texts: tokenizer.encode_ids(texts, max_length=512)
        best = best_times(implementations, rounds=rounds)
        flops = sum(text_flops(int(length)) for length in lengths)
        rows = {}
        for engine_name, seconds in best.items():
            rate, mfu = len(texts) / seconds, flops / seconds / peak
            rows[engine_name] = {"texts_per_second": round(rate), "mfu": round(mfu, 3)}
            print(f"{name:<22}{engine_name:<30}{rate:10.0f} texts/s   MFU {mfu:.3f}")
        results[name] = {"texts": len(texts), "tokens": int(lengths.sum()), "engines": rows}
        results[name]["worst_cosine_to_fp32"] = cosine_to_float32(engine, texts[:256])
        print(f"{name:<22}lowest cosine of 256 texts to float32: {results[name]['worst_cosine_to_fp32']:.6f}")
    print(describe_machine())
    return results


def workloads(
    tokenizer: Tokenizer, count: int, *, sst2: Path | None = None, squad: Path | None = None
) -> dict[str, list[str]]:
    random = np.random.default_rng(0)
    found = {
        "short texts": synthetic(tokenizer, random, count, mean=2.95, deviation=0.5, low=4, high=66),
        "paragraphs": synthetic(tokenizer, random, count, mean=4.85, deviation=0.7, low=8, high=512),
    }
    if sst2:
        lines = sst2.read_text(encoding="utf-8").splitlines()[:count]
        found["SST-2 sentences"] = [line.split("\t")[0] for line in lines]
    if squad:
        articles = json.loads(squad.read_text(encoding="utf-8"))["data"]
        found["SQuAD paragraphs"] = [p["context"] for one in articles for p in one["paragraphs"]][:count]
    return found


def synthetic(
    tokenizer: Tokenizer, random: np.random.Generator, count: int, *, mean: float, deviation: float, low: int, high: int
) -> list[str]:
    """Texts of frequent words with log-normal lengths in tokens, [CLS] and [SEP] included."""
    words = np.array([word for word in tokenizer.vocabulary if word.isascii() and word.isalpha()][:8000])
    lengths = np.clip(random.lognormal(mean, deviation, count), low, high).astype(int)
    return [" ".join(random.choice(words, length - 2)) for length in lengths]


def text_flops(length: int) -> int:
    """Of a forward pass of BERT-base: the products with weights, and attention."""
    return 12 * (2 * length * (4 * 768 * 768 + 2 * 768 * 3072) + 4 * length * length * 768)


def peak_flops(device: torch.device) -> float:
    """Of a large matrix product in bf16."""
    if device.type == "cpu":
        return 1e12
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))

    def product() -> None:
        for _ in range(10):
            torch.mm(a, b)
        torch.cuda.synchronize()

    return float(10 * 2 * 8192**3 / best_times({"product": product}, rounds=3)["product"])


def cosine_to_float32(engine: EmbeddingEngine, texts: list[str]) -> float:
    exact = EmbeddingEngine(engine.model, engine.tokenizer, device=engine.device, max_length=512, precision="fp32")
    one, other = (torch.from_numpy(each.embed(texts)) for each in (engine, exact))
    return float(torch.cosine_similarity(one, other).min())


def transformers_engines(
    model: Bert, vocabulary: Path, texts: list[str], device: torch.device
) -> dict[str, Callable[[], np.ndarray]]:
    import transformers

    library: Any = transformers
    tokenizer = library.BertTokenizerFast(vocab_file=str(vocabulary))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    peer = library.BertModel(library.BertConfig(attn_implementation="sdpa"), add_pooling_layer=False)
    peer = peer.to(device, dtype).eval()

    def embed(ordered: bool) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i])) if ordered else list(range(len(texts)))
        result = np.empty((len(texts), 768), dtype=np.float32)
        for start in range(0, len(order), BATCH):
            group = order[start : start + BATCH]
            inputs = tokenizer(
                [texts[i] for i in group], padding=True, truncation=True, max_length=512, return_tensors="pt"
            ).to(device)
            with torch.inference_mode():
                hidden = peer(**inputs).last_hidden_state
                mask = inputs["attention_mask"][..., None].to(hidden.dtype)
                result[group] = ((hidden * mask).sum(1) / mask.sum(1)).float().cpu().numpy()
        return result

    return {"transformers, as they come": lambda: embed(False), "transformers, sorted": lambda: embed(True)}


if __name__ == "__main__":
    main()
