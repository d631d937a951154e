"""Search in a million vectors: Regard's exact search against faiss's flat index and numpy, and approximate indexes.

    python -m benchmarks.search exact [--rows 1000000] [--width 384] [--rounds 5] [--save]
    python -m benchmarks.search approximate [--rows 200000] [--save]
    python -m benchmarks.search sparse [--rows 100000] [--rounds 5] [--save]

The vectors are a mixture of 1,000 Gaussians in 32 dimensions, projected to `--width` with a little noise and
normalized; queries come from the same mixture and are not among the rows. All implementations run with two threads in
one process and alternate; the best round counts. Regard reads a memory-mapped file that is in the page cache, faiss and
numpy have a copy in memory. Approximate: build time, queries per second (one by one) and recall@10 of Regard's inverted
file, and of faiss's HNSW graph.

Sparse: documents of about 120 and queries of about 30 different tokens, drawn from 30,522 by Zipf's law, with random
weights, one query at a time. Regard's inverted index, memory-mapped, against two products of scipy in memory: of the
query with the transposed matrix (CSR, which also reads only the postings of the query), and of the matrix with a dense
query. The top 10 must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import RESULTS, best_times, describe_machine, save_results
from regard.inference.search.approximate import ApproximateIndex, num_cells, write_approximate
from regard.inference.search.exact import search_exact
from regard.inference.search.inverted import SparsePostings, SparseRow, search_sparse, write_sparse

TOP = 10
THREADS = 2
CENTERS, INNER_WIDTH, SPREAD, NOISE = 1000, 32, 0.5, 0.02
NUM_QUERIES = 100
NUM_TOKENS = 30_522
HNSW = {"M": 32, "efConstruction": 80}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("exact", "approximate", "sparse"))
    parser.add_argument("--rows", type=int, help="default: 1,000,000; 200,000 for approximate, 100,000 for sparse")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    parser.add_argument("--folder", type=Path, help="where the vectors are written; default: a temporary folder")
    parser.add_argument("--save", action="store_true", help="write the part to benchmarks/results/search.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(THREADS)
    rows = options.rows or {"exact": 1_000_000, "approximate": 200_000, "sparse": 100_000}[options.part]
    results: dict[str, Any] = {"rows": rows, "threads": THREADS, "load": _load()}
    if options.part != "sparse":
        results["width"] = options.width
    print(describe_machine(), results)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        if options.part == "sparse":
            results |= sparse(folder, rows, rounds=options.rounds)
        else:
            queries = write_vectors(folder / "vectors.npy", rows, options.width)
            vectors = np.load(folder / "vectors.npy", mmap_mode="c")
        if options.part == "exact":
            results["seconds"] = exact(vectors, queries, rounds=options.rounds)
        elif options.part == "approximate":
            results |= {"ivf": inverted_file(folder, vectors, queries), "hnsw": graph(vectors, queries)}
    results["load_at_end"] = _load()
    print(results)
    if options.save:
        path = RESULTS / "search.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        parts = {name: before[name] for name in ("exact", "approximate", "sparse") if name in before}
        print(save_results("search", {**parts, options.part: {"date": str(date.today()), **results}}))


def _load() -> float:
    """The mean number of running processes: above the number of cores, times are too long."""
    return round(os.getloadavg()[0], 1)


def write_vectors(path: Path, rows: int, width: int) -> np.ndarray:
    """Write normalized vectors and return queries."""
    generator = np.random.default_rng(0)
    centers = generator.standard_normal((CENTERS, INNER_WIDTH), dtype=np.float32)
    projection = generator.standard_normal((INNER_WIDTH, width), dtype=np.float32) / INNER_WIDTH**0.5

    def sample(count: int) -> np.ndarray:
        inner = centers[generator.integers(CENTERS, size=count)]
        inner = inner + SPREAD * generator.standard_normal(inner.shape, dtype=np.float32)
        found = inner @ projection + NOISE * generator.standard_normal((count, width), dtype=np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (rows, width))
    for start in range(0, rows, 50_000):
        vectors[start : start + 50_000] = sample(min(50_000, rows - start))
    vectors.flush()
    return sample(NUM_QUERIES)


def exact(vectors: np.ndarray, queries: np.ndarray, *, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds for one query and for all, by implementation; all of them must find the same rows."""
    import faiss

    faiss.omp_set_num_threads(THREADS)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(np.ascontiguousarray(vectors))
    copy = np.array(vectors)

    def by_numpy(batch: np.ndarray) -> np.ndarray:
        scores = batch @ copy.T
        best = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
        return np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1), 1)

    implementations: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "regard": lambda batch: np.array([one.positions for one in search_exact(batch, vectors, TOP)]),
        "faiss_flat": lambda batch: flat.search(batch, TOP)[1],
        "numpy": by_numpy,
    }
    found: dict[str, dict[str, float]] = {}
    for count in (1, len(queries)):
        batch = np.ascontiguousarray(queries[:count])
        answers = {name: search(batch) for name, search in implementations.items()}
        for name, rows in answers.items():
            # float32 sums may order two neighbors with nearly equal scores differently
            agreement = np.mean([len(set(a) & set(b)) / TOP for a, b in zip(rows, answers["regard"], strict=True)])
            assert agreement >= 0.999, (name, agreement)
        calls = {name: (lambda search=search, batch=batch: search(batch)) for name, search in implementations.items()}
        seconds = best_times(calls, rounds=rounds)
        found[f"batch_{count}"] = {name: round(value, 4) for name, value in seconds.items()}
        print(f"batch {count}:", found[f"batch_{count}"])
    return found


def sparse(folder: Path, rows: int, *, rounds: int) -> dict[str, Any]:
    """Milliseconds per query of Regard and of scipy."""
    import scipy.sparse

    generator = np.random.default_rng(0)
    chances = 1 / np.arange(1, NUM_TOKENS + 1)
    steps = np.cumsum(chances / chances.sum())

    def sample(count: int, tokens: int) -> Any:
        sizes = generator.poisson(tokens, count).clip(1)
        owners = np.repeat(np.arange(count), sizes)
        columns = np.searchsorted(steps, generator.random(len(owners))).clip(max=NUM_TOKENS - 1)
        pairs = np.unique(owners * NUM_TOKENS + columns)
        weights = generator.random(len(pairs)).astype(np.float32) * 3
        places = pairs // NUM_TOKENS, pairs % NUM_TOKENS
        return scipy.sparse.csr_matrix((weights, places), shape=(count, NUM_TOKENS))

    # Repeated draws of frequent tokens count once, so that more than 120 and 30 are drawn.
    matrix, queries = sample(rows, 162), sample(NUM_QUERIES, 34)
    scipy.sparse.save_npz(folder / "vectors.npz", matrix, compressed=False)
    write_sparse(folder, folder / "vectors.npz")
    postings, transposed = SparsePostings(folder, rows), matrix.T.tocsr()
    given = [SparseRow(query.indices, query.data) for query in queries]
    dense = [np.asarray(query.todense())[0] for query in queries]

    def best(scores: np.ndarray) -> np.ndarray:
        places = np.argpartition(-scores, TOP)[:TOP]
        return places[np.argsort(-scores[places])]

    def by_transposed(number: int) -> np.ndarray:
        product = queries[number] @ transposed
        return product.indices[best(product.data)]

    implementations: dict[str, Callable[[int], np.ndarray]] = {
        "regard": lambda number: search_sparse(given[number], [postings], TOP).positions,
        "scipy_transposed": by_transposed,
        "scipy_dense_query": lambda number: best(matrix @ dense[number]),
    }
    for number in range(NUM_QUERIES):
        answers = {name: search(number).tolist() for name, search in implementations.items()}
        assert all(set(answer) == set(answers["regard"]) for answer in answers.values()), (number, answers)
    calls = {
        name: (lambda search=search: [search(number) for number in range(NUM_QUERIES)])
        for name, search in implementations.items()
    }
    seconds = best_times(calls, rounds=rounds)
    return {
        "tokens_per_text": round(matrix.nnz / rows, 1),
        "tokens_per_query": round(queries.nnz / NUM_QUERIES, 1),
        "milliseconds": {name: round(1000 * value / NUM_QUERIES, 3) for name, value in seconds.items()},
    }


def inverted_file(folder: Path, vectors: np.ndarray, queries: np.ndarray) -> dict[str, float]:
    """Regard's approximate index, which is faiss's IVF."""
    import faiss

    faiss.omp_set_num_threads(THREADS)
    begin = time.perf_counter()
    write_approximate(folder, vectors)
    built = time.perf_counter() - begin
    index = ApproximateIndex(folder)
    rate = _rate(lambda query: index.search(query, vectors, TOP), queries)
    found = [one.positions for one in index.search(queries, vectors, TOP)]
    result = {"cells": num_cells(len(vectors)), "probes": index._index.nprobe}
    return {**result, **_report("ivf", built, rate, found, vectors, queries)}


def graph(vectors: np.ndarray, queries: np.ndarray) -> dict[str, float]:
    """faiss's HNSW, with the smallest search width that reaches the recall of 0.98."""
    import faiss

    index = faiss.IndexHNSWFlat(vectors.shape[1], HNSW["M"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = HNSW["efConstruction"]
    begin = time.perf_counter()
    index.add(np.ascontiguousarray(vectors))
    built = time.perf_counter() - begin
    width = 16
    while True:
        index.hnsw.efSearch = width
        found = list(index.search(queries, TOP)[1])
        if _recall(found, vectors, queries) >= 0.98 or width >= 1024:
            break
        width *= 2
    rate = _rate(lambda query: index.search(query, TOP), queries)
    return {"efSearch": width, **_report("hnsw", built, rate, found, vectors, queries)}


def _rate(search: Callable[[np.ndarray], object], queries: np.ndarray) -> float:
    """Queries per second, one by one, in the best of three rounds."""
    singles = [np.ascontiguousarray(query[None]) for query in queries]
    seconds = best_times({"all": lambda: [search(query) for query in singles]}, rounds=3)["all"]
    return len(queries) / seconds


def _recall(found: Sequence[np.ndarray], vectors: np.ndarray, queries: np.ndarray) -> float:
    expected = search_exact(queries, vectors, TOP)
    return float(np.mean([len(set(a) & set(b.positions)) / TOP for a, b in zip(found, expected, strict=True)]))


def _report(
    name: str, built: float, rate: float, found: Sequence[np.ndarray], vectors: np.ndarray, queries: np.ndarray
) -> dict[str, float]:
    recall = _recall(found, vectors, queries)
    report = {"build_seconds": round(built, 1), "queries_per_second": round(rate, 1), "recall_at_10": round(recall, 4)}
    print(name, len(vectors), report)
    return report


if __name__ == "__main__":
    main()
