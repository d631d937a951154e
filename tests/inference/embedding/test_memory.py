"""The memory of a job does not grow with its input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PEAK = """
import resource, sys
from tests.inference.measure import embed_file

def embedded(name):
    embed_file(name, sys.argv[3], restart=True, model=sys.argv[4], layers="concat(:)", pooling="none", shard_size=500)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

print(embedded(sys.argv[1]), embedded(sys.argv[2]))
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_input(tiny_bert_folder: Path, tmp_path: Path) -> None:
    """Ten times as many texts, whose vectors alone take 90 MB more."""
    for count in (2_000, 20_000):
        (tmp_path / f"{count}.txt").write_text("she said it was a long dull film\n" * count, encoding="utf-8")
    names = [str(tmp_path / name) for name in ("2000.txt", "20000.txt", "out.npz")]
    found = subprocess.run(
        [sys.executable, "-c", PEAK, *names, str(tiny_bert_folder)], capture_output=True, text=True, check=True
    )
    few, many = map(int, found.stdout.split())
    assert np.load(names[2])["vectors"].nbytes > 70_000_000
    assert many - few < 25, f"{few} MB for 2,000 texts and {many} MB for 20,000"
