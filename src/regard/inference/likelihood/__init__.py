"""How likely a language model finds texts: lines of a file, and the endings of benchmarks ranked by likelihood.

Knows loaded models, their tokenizers and the files of four benchmarks; knows nothing of the command line. Reading
order: causal, lines, items, readers, benchmark, published.
"""

from __future__ import annotations

from regard.inference.likelihood.benchmark import Benchmark, run_benchmark
from regard.inference.likelihood.items import Item
from regard.inference.likelihood.lines import LineScore, lines_of, score_lines
from regard.inference.likelihood.readers import TASKS, read_items

__all__ = ["TASKS", "Benchmark", "Item", "LineScore", "lines_of", "read_items", "run_benchmark", "score_lines"]
