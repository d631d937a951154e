"""Memory of a pretraining run while the corpus grows: token shards in a folder, and on an object store.

    python -m benchmarks.pretrain_memory [--tokens 10 50 200] [--shuffle-shards 2] [--store] [--save]

Writes corpora of random tokens (millions of them, in shards of 4 million) and reads micro-batches of BERT's and GPT's
objectives from them, in a process of its own for each. Anonymous memory is what the process holds; the pages of mapped
files are counted apart, since the system takes them back when it needs them. `--store` reads the corpus from moto's S3
server on this machine, too, through a cache of 64 MiB on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import save_results

MODELS = Path(__file__).parents[1] / "src" / "regard" / "builtin"
FAMILIES = {"bert": "regard-bert", "gpt": "regard-gpt"}
SHARD_TOKENS, SENTENCE, DOCUMENT = 4_000_000, 25, 20  # tokens of a shard and a sentence, sentences of a document
CACHE_BYTES = 64 << 20
MICRO_BATCH, BATCHES = 4096, 400


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", nargs="+", type=int, default=[10, 50, 200], help="millions")
    parser.add_argument("--shuffle-shards", type=int, default=2)
    parser.add_argument("--store", action="store_true", help="also read from an object store")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/pretrain_memory.json")
    parser.add_argument("--read", nargs=2, metavar=("FAMILY", "CORPUS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.read:
        family, corpus = options.read
        print(json.dumps(read(family, corpus, options.shuffle_shards)))
        return
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        environment = {**os.environ, "REGARD_CACHE": str(Path(scratch, "cache"))}
        server = None
        if options.store:
            from tests.object_store import run_object_server

            server = stack.enter_context(run_object_server())
            environment |= server.environment()
            os.environ.update(environment)
        for family in FAMILIES:
            for millions in options.tokens:
                folder = Path(scratch, f"{family}-{millions}")
                size = write_corpus(folder, family, millions * 10**6)
                sources = {"folder": str(folder)}
                if server is not None:
                    sources["s3"] = upload(server, folder)
                for name, source in sources.items():
                    settings = ["--shuffle-shards", str(options.shuffle_shards)]
                    command = [sys.executable, "-m", "benchmarks.pretrain_memory", "--read", family, source, *settings]
                    found = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
                    row = {"corpus_megabytes": round(size / 1e6), **json.loads(found.stdout)}
                    rows[f"{family}, {millions} million tokens, {name}"] = row
                    print(f"{family}, {millions} million tokens, {name}: {row}", flush=True)
    if options.save:
        print(save_results("pretrain_memory", {"shuffle_shards": options.shuffle_shards, "runs": rows}))


def write_corpus(folder: Path, family: str, tokens: int) -> int:
    """Write shards of random tokens; return their size in bytes."""
    from regard.data.corpus.folder import (
        REPORT,
        TOKENIZER,
        CorpusManifest,
        ShardWriter,
        shard_folder,
        token_type,
        tokenizer_digest,
        tokenizer_files,
    )
    from regard.data.corpus.sentences import RULES
    from regard.files.durable_folder import FolderRecord
    from regard.text import Tokenizer

    tokenizer = Tokenizer.open(MODELS / FAMILIES[family])
    folder.mkdir()
    generator, shards = np.random.default_rng(0), []
    for number, start in enumerate(range(0, tokens, SHARD_TOKENS)):
        shard_folder(folder, number).mkdir()
        writer = ShardWriter(shard_folder(folder, number), dtype=token_type(tokenizer.size), unknown=None)
        sentences = min(SHARD_TOKENS, tokens - start) // SENTENCE
        ids = generator.integers(10, tokenizer.size, sentences * SENTENCE)
        writer.add(ids, np.full(sentences, SENTENCE), [DOCUMENT] * (sentences // DOCUMENT))
        shards.append(writer.finish(paragraphs=sentences, size=5 * len(ids), next=(0, number + 1)))
    tokenizer.save(folder / TOKENIZER)
    (folder / REPORT).write_text("{}")
    manifest = CorpusManifest(
        sources=(),
        tokenizer=tokenizer_digest(tokenizer),
        vocabulary=tokenizer.size,
        settings={"key": "text", "shard_bytes": SHARD_TOKENS, "sentence_rules": RULES, "spaces": family == "gpt"},
        tokenizer_files=tokenizer_files(tokenizer),
    )
    outcome = {"shards": [asdict(shard) for shard in shards]}
    FolderRecord("corpus", finished=True, identity=manifest.identity, outcome=outcome).write(folder)
    return sum(path.stat().st_size for path in folder.glob("shard-*/*"))


def upload(server: Any, folder: Path) -> str:
    from regard.data.corpus.reader import upload_corpus
    from tests.object_store import SIGNED

    server.request(folder.name, method="PUT", Authorization=SIGNED)
    address = f"s3://{folder.name}/corpus"
    for _ in upload_corpus(folder, address):
        pass
    return address


def read(family: str, source: str, shuffle_shards: int) -> dict[str, float]:
    """Read micro-batches as a run does; return megabytes of memory."""
    from regard.training.recipes.pretraining.config import PretrainingConfig
    from regard.training.recipes.pretraining.corpus import open_dataset
    from regard.training.recipes.pretraining.objectives import objective_class

    config = PretrainingConfig.read(family=family, overrides=[f"data.shuffle_shards={shuffle_shards}"])
    before = memory()["anonymous"]
    dataset = open_dataset(config, [source], Path(), held_out=False, cache_bytes=CACHE_BYTES)
    stream = objective_class(config).micro_batches(config, dataset, MICRO_BATCH).stream()
    opened, peak = memory()["anonymous"], {"anonymous": 0, "mapped": 0}
    for _ in islice(stream, BATCHES):
        now = memory()
        peak = {name: max(value, now[name]) for name, value in peak.items()}
    return {
        "opened_megabytes": round((opened - before) / 1e6, 1),
        "peak_megabytes": round((peak["anonymous"] - before) / 1e6, 1),
        "mapped_megabytes": round(peak["mapped"] / 1e6, 1),
    }


def memory() -> dict[str, int]:
    """Anonymous memory and pages of mapped files, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split(":") for line in lines if line.endswith(" kB"))
    values = {name: int(rest.split()[0]) * 1024 for name, rest in pairs}
    return {"anonymous": values["RssAnon"], "mapped": values["RssFile"]}


if __name__ == "__main__":
    main()
