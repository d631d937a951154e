"""Peak memory of `regard embed` from a text file to a .npy file: does it grow with the number of texts?

    python -m benchmarks.embed_memory [--count 10000 1000000] [--save]

Every count runs in a process of its own, whose peak resident memory the operating system reports. The model is a tiny
BERT with random weights, so that a million texts take about two minutes; texts have 4 to 12 words. What a real model
adds, its weights and the hidden states of one batch, does not depend on the number of texts.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.timing import describe_machine, save_results
from regard.models import Bert, BertConfig
from regard.text import Tokenizer

WORDS = "the a film day water people was is good bad long time of to and one would like more first down never"
UNIT = 1 if sys.platform == "darwin" else 1024  # bytes in which ru_maxrss counts
RUN = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", nargs="+", type=int, default=[10_000, 1_000_000], help="numbers of texts")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/embed_memory.json")
    options = parser.parse_args(arguments)
    results = measure(options.count)
    if options.save:
        print(save_results("embed_memory", results))


def measure(counts: Sequence[int]) -> dict[str, Any]:
    """Peak memory and time for each number of texts, and the ratio of the last peak to the first."""
    print(describe_machine(), flush=True)
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch, "model")
        write_tiny_model(model)
        for count in counts:
            source, output = Path(scratch, "texts.txt"), Path(scratch, f"{count}.npy")
            write_texts(source, count)
            begin = time.perf_counter()
            peak = peak_memory(embed_command(source, model, output))
            seconds = time.perf_counter() - begin
            rows[str(count)] = {"peak_mb": round(peak / 1e6, 1), "seconds": round(seconds, 1)}
            print(f"{count:>10,} texts  {peak / 1e6:8.1f} MB  {seconds:7.1f} s", flush=True)
            output.unlink()
    first, last = rows[str(counts[0])], rows[str(counts[-1])]
    ratio = round(last["peak_mb"] / first["peak_mb"], 3)
    print(f"ratio {ratio:.3f}")
    return {"counts": rows, "ratio": ratio}


def embed_command(source: Path, model: Path, output: Path) -> list[str]:
    options = ["--model", str(model), "--output", str(output), "--device", "cpu"]
    return [sys.executable, "-m", "regard", "embed", str(source), *options]


def peak_memory(command: Sequence[str]) -> int:
    """Run a command and return the peak resident memory of its process in bytes.

    A small process starts it: on Linux the peak of a process is at least the size of the one that started it.
    """
    done = subprocess.run([sys.executable, "-c", RUN, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return int(done.stdout) * UNIT


def write_texts(path: Path, count: int) -> None:
    generator, words = random.Random(0), WORDS.split()
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            file.write(" ".join(generator.choices(words, k=generator.randint(4, 12))) + "\n")


def write_tiny_model(folder: Path) -> None:
    """A BERT of two layers of size 32 with random weights and a vocabulary of a few words."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = Bert(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=128, **shape))
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
        regard.save(model, folder, tokenizer=Tokenizer.open(Path(scratch)))


if __name__ == "__main__":
    main()
