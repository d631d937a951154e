"""The engines that `benchmarks.embed` compares: each is a function from texts to normalized vectors.

All but sentence-transformers, Regard and fastembed, which bring their own, get the same tokenizer and the same loop:
texts sorted by length, batches of limited size. Each of them uses the batch size with which it was fastest on a sample,
as Regard does.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.text import Tokenizer

MAX_LENGTH = 256  # what the folder of all-MiniLM-L6-v2 states
TOKENS_PER_BATCH = (512, 1024, 2048, 8192)  # padding included
SAMPLE = 64  # texts with which these are compared

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]
EncodeBatch = Callable[[list[list[int]]], Vectors]  # token ids of some texts to their mean hidden states


class EngineFiles:
    """The folder of the model, and the files that engines make of it in a scratch folder."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.open(self.folder)

    @cached_property
    def onnx(self) -> Path:
        """The encoder as an ONNX file in float32, with the hidden states as its output."""
        path = self.scratch / "onnx" / "model.onnx"
        path.parent.mkdir()
        export_onnx(self.folder, path)
        return path

    @cached_property
    def onnx_int8(self) -> Path:
        """The same with 8-bit weights per channel; of 7 bits where products of neighbors would overflow 16 bits."""
        from onnxruntime.quantization import QuantType, quantize_dynamic

        path = self.scratch / "int8.onnx"
        quantize_dynamic(
            self.onnx,
            path,
            per_channel=True,
            reduce_range=not has_vnni(),
            weight_type=QuantType.QInt8,
            extra_options={},
        )
        return path


class BatchedEngine:
    """Embeds texts with a function for one batch: sorted by length, at most `tokens_per_batch` tokens each."""

    def __init__(self, encode: EncodeBatch, tokenizer: Tokenizer) -> None:
        self.encode, self.tokenizer = encode, tokenizer
        self.tokens_per_batch = TOKENS_PER_BATCH[1]

    def choose_batch_size(self, texts: Sequence[str]) -> None:
        """Choose the fastest of the batch sizes for texts like these."""
        sample, seconds = texts[:: max(1, len(texts) // SAMPLE)], {}
        for self.tokens_per_batch in TOKENS_PER_BATCH:
            self(sample)
            begin = time.perf_counter()
            self(sample)
            seconds[self.tokens_per_batch] = time.perf_counter() - begin
        self.tokens_per_batch = min(seconds, key=lambda tokens: seconds[tokens])

    def __call__(self, texts: Sequence[str]) -> Vectors:
        ids, _ = self.tokenizer.ids_batch(list(texts), max_length=MAX_LENGTH)
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        result: list[Vectors] = [np.empty(0, dtype=np.float32)] * len(ids)
        start = 0
        while start < len(order):
            size = max(1, self.tokens_per_batch // len(ids[order[start]]))
            indices = order[start : start + size]
            for index, vector in zip(indices, self.encode([ids[i] for i in indices]), strict=True):
                result[index] = vector
            start += size
        vectors = np.stack(result)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def sentence_transformers(files: EngineFiles) -> Embed:
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(files.folder), device="cpu")
    return lambda texts: model.encode(list(texts), batch_size=32, normalize_embeddings=True, show_progress_bar=False)


def regard(files: EngineFiles, precision: str) -> Embed:
    from regard import Embedder

    embedder = Embedder(files.folder, normalize=True, device="cpu", precision=precision).fit()
    return lambda texts: embedder.transform(list(texts))


def transformers(files: EngineFiles) -> Embed:
    from transformers import AutoModel

    model: Any = AutoModel.from_pretrained(files.folder).eval()

    def encode(ids: list[list[int]]) -> Vectors:
        padded, mask = pad(ids)
        with torch.inference_mode():
            hidden = model(torch.from_numpy(padded), attention_mask=torch.from_numpy(mask)).last_hidden_state
        return mean_pool(hidden.numpy(), mask)

    return BatchedEngine(encode, files.tokenizer)


def ctranslate2(files: EngineFiles, precision: str) -> Embed:
    import ctranslate2 as engine

    target, compute_type = files.scratch / f"ctranslate2-{precision}", {"fp32": "float32", "int8": "int8"}[precision]
    engine.converters.TransformersConverter(str(files.folder)).convert(str(target), quantization=compute_type)
    encoder = engine.Encoder(
        str(target), device="cpu", compute_type=compute_type, intra_threads=torch.get_num_threads()
    )

    def encode(ids: list[list[int]]) -> Vectors:
        return mean_pool(np.array(encoder.forward_batch(ids).last_hidden_state), pad(ids)[1])

    return BatchedEngine(encode, files.tokenizer)


def onnxruntime(files: EngineFiles, precision: str) -> Embed:
    import onnxruntime as engine

    settings = engine.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    path = files.onnx if precision == "fp32" else files.onnx_int8
    session = engine.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    def encode(ids: list[list[int]]) -> Vectors:
        padded, mask = pad(ids)
        return mean_pool(session.run(None, {"input_ids": padded, "attention_mask": mask})[0], mask)

    return BatchedEngine(encode, files.tokenizer)


def openvino(files: EngineFiles) -> Embed:
    import openvino as engine

    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = engine.Core().compile_model(str(files.onnx), "CPU", settings).create_infer_request()

    def encode(ids: list[list[int]]) -> Vectors:
        padded, mask = pad(ids)
        request.infer({"input_ids": padded, "attention_mask": mask})
        return mean_pool(request.get_output_tensor(0).data, mask)

    return BatchedEngine(encode, files.tokenizer)


def fastembed(files: EngineFiles) -> Embed:
    from fastembed import TextEmbedding

    folder = files.scratch / "fastembed"
    shutil.copytree(files.folder, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "onnx", "openvino"))
    shutil.copytree(files.onnx.parent, folder, dirs_exist_ok=True)
    model = TextEmbedding(
        "sentence-transformers/all-MiniLM-L6-v2", specific_model_path=str(folder), threads=torch.get_num_threads()
    )
    return lambda texts: np.stack(list(model.embed(list(texts), batch_size=32)))


ENGINES: dict[str, Callable[[EngineFiles], Embed]] = {
    "sentence-transformers": sentence_transformers,
    "transformers fp32": transformers,
    "regard fp32": lambda files: regard(files, "fp32"),
    "regard int8": lambda files: regard(files, "int8"),
    "regard auto": lambda files: regard(files, "auto"),
    "CTranslate2 fp32": lambda files: ctranslate2(files, "fp32"),
    "CTranslate2 int8": lambda files: ctranslate2(files, "int8"),
    "onnxruntime fp32": lambda files: onnxruntime(files, "fp32"),
    "onnxruntime int8": lambda files: onnxruntime(files, "int8"),
    "OpenVINO fp32": openvino,
    "fastembed fp32": fastembed,
}


def pad(ids: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids with zeros up to the longest text, and the attention mask."""
    lengths = np.array([len(row) for row in ids])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    padded = np.zeros(mask.shape, dtype=np.int64)
    padded[mask == 1] = np.concatenate([np.array(row) for row in ids])
    return padded, mask


def mean_pool(hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> Vectors:
    weights = (mask / mask.sum(1, keepdims=True)).astype(np.float32)
    return np.matmul(weights[:, None], hidden)[:, 0]


def has_vnni() -> bool:
    """Whether the CPU adds products of 8-bit numbers in 32 bits."""
    path = Path("/proc/cpuinfo")
    return path.exists() and bool({"avx512_vnni", "avx_vnni"} & set(path.read_text().split()))


def export_onnx(folder: Path, path: Path) -> None:
    import onnxscript  # noqa: F401 (the exporter needs it)
    from transformers import BertModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert: Any = BertModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
            return hidden

    ids, mask = torch.full((3, 7), 5), torch.ones(3, 7, dtype=torch.long)
    batch, length = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("length", min=1, max=512)
    torch.onnx.export(
        Encoder().eval(),
        (ids, mask),
        str(path),
        input_names=["input_ids", "attention_mask"],
        output_names=["last_hidden_state"],
        dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}),
        dynamo=True,
        verbose=False,
    )
