"""Building a corpus: speed with one and two workers, and whether memory grows with the text.

    python -m benchmarks.corpus [--megabytes 50 200] [--workers 1 2] [--rounds 3] [--before SRC] [--save]

Every build runs in a process of its own with the tokenizer of regard-bert; builds with different numbers of workers
alternate. Peaks are resident memory, sampled 20 times a second: of the process and its workers together, and of each
alone. CPU seconds are those of all of them. `--before` names the sources of an earlier version of Regard (its folder
`src`), which builds the first size too. The bytes of all corpora of one text must be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import describe_machine, save_results

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TEXTS = [DATA / "corpus" / name for name in ("part-a.txt.xz", "part-b.txt.xz")]
TOKENIZER = Path(__file__).parents[1] / "src" / "regard" / "builtin" / "regard-bert"
BUILD = """
import json, sys
from pathlib import Path
from regard.data.corpus import build_corpus
from regard.text import Tokenizer
source, folder, tokenizer, options = sys.argv[1:]
build_corpus(source, folder, tokenizer=Tokenizer.open(Path(tokenizer)), **json.loads(options))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", type=Path, default=TEXTS, help="text files, compressed with xz")
    parser.add_argument("--megabytes", nargs="+", type=int, default=[50, 200], help="sizes of the text")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=1, help="builds of each kind")
    parser.add_argument("--before", type=Path, help="the folder src of an earlier version")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/corpus.json")
    options = parser.parse_args(arguments)
    results = measure(options.text, options.megabytes, options.workers, options.rounds, options.before)
    if options.save:
        print(save_results("corpus", results))


def measure(
    texts: Sequence[Path], sizes: Sequence[int], workers: Sequence[int], rounds: int, before: Path | None
) -> dict[str, Any]:
    """Seconds, speed and peak memory of every build."""
    print(describe_machine(), flush=True)
    rows: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for megabytes in sizes:
            source = Path(scratch, f"{megabytes}.txt")
            write_text(source, texts, megabytes * 10**6)
            builds = [(f"{count} workers", {"workers": count}, None) for count in workers]
            if before is not None and megabytes == sizes[0]:
                builds = [(f"before, {name}", options, before) for name, options, _ in builds] + builds
            digests = set()
            for name, options, sources in builds * rounds:
                folder = Path(scratch, "corpus")
                row = build(source, folder, options, sources)
                rows.setdefault(f"{megabytes} MB, {name}", []).append(row)
                digests.add(digest(folder))
                shutil.rmtree(folder)
                print(f"{megabytes} MB, {name}: {row}", flush=True)
            assert len(digests) == 1, "the bytes differ"
            source.unlink()
    return {"shard_bytes": 1 << 24, "builds": rows}


def write_text(path: Path, texts: Sequence[Path], size: int) -> None:
    """Write the first `size` bytes of the texts, up to the end of a line."""
    with path.open("wb") as file:
        for text in texts:
            with lzma.open(text) as lines:
                for line in lines:
                    if file.tell() >= size:
                        return
                    file.write(line)


def build(source: Path, folder: Path, options: dict[str, Any], sources: Path | None) -> dict[str, Any]:
    """Build one corpus in another process."""
    environment = {**os.environ, **({"PYTHONPATH": str(sources)} if sources else {})}
    command = [sys.executable, "-c", BUILD, str(source), str(folder), str(TOKENIZER), json.dumps(options)]
    used, begin, peak, alone = cpu_seconds(), time.perf_counter(), 0, Counter[int]()
    process = subprocess.Popen(command, env=environment)
    while process.poll() is None:
        sizes = {number: resident_bytes(number) for number in [process.pid, *children(process.pid)]}
        alone |= Counter(sizes)  # the larger of both
        peak = max(peak, sum(sizes.values()))
        time.sleep(0.05)
    assert process.returncode == 0
    return {
        "seconds": round(time.perf_counter() - begin, 2),
        "cpu_seconds": round(cpu_seconds() - used, 2),
        "peak_megabytes": round(peak / 1e6),
        "peak_megabytes_of_each": [round(size / 1e6) for size in alone.values()],
    }


def cpu_seconds() -> float:
    """Of the processes that this one has started and that have ended, with their own."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def children(process: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def resident_bytes(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def digest(folder: Path) -> str:
    """The SHA-256 of all token shards."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("shard-*/*")):
        found.update(path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    main()
