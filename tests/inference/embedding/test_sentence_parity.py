"""Folders that sentence-transformers wrote give its vectors: every pooling, module, prompt and setting."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn

import regard
from regard import Embedder
from regard.errors import InputError
from regard.events import drain
from regard.inference.embedding.engine import load_engine
from regard.inference.embedding.sentence_transformers import read_sentence_settings
from regard.inference.export import export
from regard.inference.load_model import load_model
from regard.nn.pooling import POOLINGS
from regard.server.errors import RequestError
from regard.server.models.services import EmbeddingService

peer = pytest.importorskip("sentence_transformers")
from sentence_transformers.sentence_transformer import modules as peer_modules  # noqa: E402

Peer = Callable[..., Any]
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "query",
    "passage",
    ":",
    "the",
    "film",
    "was",
    "good",
    "so",
    "long",
    "dull",
    "i",
    "##s",
    "##ing",
    "?",
]
TEXTS = ["the film was good", "", "dulling", "the Film was so so LONG ? " * 12, "ein Film", "i", "Ünknown ☃ the"]
WIDTH = 12


def tokenizer_of(kind: str) -> Any:
    """BERT's tokenizer, or one of a decoder: it pads on the left and ends texts with a token, or not."""
    pipeline = Tokenizer(models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=kind != "cased")
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    template = {"decoder": "$A [SEP]", "plain": "$A"}.get(kind, "[CLS] $A [SEP]")
    special = [("[CLS]", 2), ("[SEP]", 3)]
    pipeline.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "[SEP]"}
    side = "left" if kind in ("decoder", "plain") else "right"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=pipeline, padding_side=side, model_max_length=30, **names
    )


def base_model(kind: str) -> nn.Module:
    torch.manual_seed(5)
    sizes: dict[str, Any] = {"vocab_size": len(WORDS), "hidden_size": WIDTH, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 17, "max_position_embeddings": 32}
    if kind in ("decoder", "plain"):
        return transformers.Qwen3Model(transformers.Qwen3Config(**sizes, num_key_value_heads=1, head_dim=6))
    return transformers.BertModel(transformers.BertConfig(**sizes))


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folders: dict[str, Path] = {}

    def base(kind: str) -> Path:
        if kind not in folders:
            folders[kind] = tmp_path_factory.mktemp("base") / kind
            base_model(kind).save_pretrained(folders[kind])
            tokenizer_of(kind).save_pretrained(folders[kind])
        return folders[kind]

    return base


@pytest.fixture
def build(bases: Callable[[str], Path], tmp_path: Path) -> Peer:
    """A model of sentence-transformers, which is also in the folder `model`."""

    def build(kind: str = "bert", *after: nn.Module, pooling: Any = "mean", **options: Any) -> Any:
        include_prompt = options.pop("include_prompt", True)
        reader = peer_modules.Transformer(str(bases(kind)), **options.pop("reading", {}))
        pooled = peer_modules.Pooling(WIDTH, pooling, include_prompt=include_prompt)
        built = peer.SentenceTransformer(modules=[reader, pooled, *after], device="cpu", **options)
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        built.save(str(tmp_path / "model"), create_model_card=False)
        return peer.SentenceTransformer(str(tmp_path / "model"), device="cpu")

    return build


def embed(folder: Path, texts: list[str] = TEXTS, **options: Any) -> NDArray[np.float32]:
    return load_engine(folder, device="cpu", **options).embed(texts)


def assert_same(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-5)


def dense(width: int, output: int, **options: Any) -> nn.Module:
    module: nn.Module = peer_modules.Dense(width, output, **options)
    return module


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("pooling", [*POOLINGS, ("mean", "cls"), ("lasttoken", "max", "weightedmean")])
@pytest.mark.parametrize("kind", ["bert", "decoder", "plain"])
def test_poolings_and_prompts(kind: str, pooling: Any, include_prompt: bool, build: Peer, tmp_path: Path) -> None:
    prompts = {"query": "query : ", "long": "the query was so long : "}
    theirs = build(kind, pooling=pooling, include_prompt=include_prompt, prompts=prompts)
    # Without special tokens an empty text has no token of its own, which is refused.
    texts = [text for text in TEXTS if text] if kind == "plain" else TEXTS
    for name in ("query", "long"):
        found = embed(tmp_path / "model", texts, prompt_name=name)
        assert_same(found, theirs.encode(texts, prompt_name=name, batch_size=3))
        assert_same(found, embed(tmp_path / "model", texts, prompt=prompts[name]))
    assert_same(embed(tmp_path / "model", texts), theirs.encode(texts))


AFTER: dict[str, Callable[[], list[nn.Module]]] = {
    "normalize": lambda: [peer_modules.Normalize()],
    "dense": lambda: [dense(WIDTH, 7)],
    "no bias": lambda: [dense(WIDTH, 5, bias=False, activation_function=nn.GELU())],
    "identity": lambda: [dense(WIDTH, 9, activation_function=None), peer_modules.Normalize()],
    "residual": lambda: [dense(WIDTH, WIDTH, use_residual=True), dense(WIDTH, 5, use_residual=True)],
    "norms": lambda: [
        peer_modules.LayerNorm(WIDTH),
        peer_modules.Dropout(0.5),
        peer_modules.Normalize(),
        dense(WIDTH, 6),
    ],
    "two": lambda: [dense(WIDTH, 31), dense(31, 4, activation_function=nn.ReLU()), peer_modules.Normalize()],
}


@pytest.mark.parametrize("truncate_dim", [None, 4, 100])
@pytest.mark.parametrize("after", AFTER)
def test_modules(after: str, truncate_dim: int | None, build: Peer, tmp_path: Path) -> None:
    torch.manual_seed(1)
    theirs = build(
        "bert", *AFTER[after](), truncate_dim=truncate_dim, prompts={"query": "query : "}, default_prompt_name="query"
    )
    folder = tmp_path / "model"
    for normalize in (None, True):
        found = embed(folder, normalize=normalize)
        assert_same(found, theirs.encode(TEXTS, normalize_embeddings=bool(normalize)))
    assert_same(Embedder(folder, device="cpu", prompt="").transform(TEXTS), theirs.encode(TEXTS, prompt=""))
    # Long texts in windows: what is not long has the same vector.
    assert_same(embed(folder, TEXTS[:3], long="windows"), theirs.encode(TEXTS[:3]))
    assert embed(folder, long="windows").shape == (len(TEXTS), found.shape[1])


@pytest.mark.parametrize("reading", [{"max_seq_length": 9}, {"do_lower_case": True}])
def test_how_texts_are_read(reading: dict[str, Any], build: Peer, tmp_path: Path) -> None:
    """The keys are no longer written by sentence-transformers, which still reads them."""
    build("cased", prompts={"query": "Query : "})
    folder = tmp_path / "model"
    path = folder / "sentence_bert_config.json"
    for document in (json.loads(path.read_text()) | reading, reading):
        path.write_text(json.dumps(document))
        theirs = peer.SentenceTransformer(str(folder), device="cpu")
        assert_same(embed(folder, prompt_name="query"), theirs.encode(TEXTS, prompt_name="query"))


def test_a_model_in_a_folder_of_its_own(build: Peer, tmp_path: Path) -> None:
    """The oldest versions put it into 0_Transformer."""
    theirs = build("bert", pooling="cls")
    folder = tmp_path / "old"
    shutil.copytree(tmp_path / "model", folder / "0_Transformer")
    shutil.move(folder / "0_Transformer" / "1_Pooling", folder)
    for name in ("modules.json", "config_sentence_transformers.json"):
        shutil.move(folder / "0_Transformer" / name, folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert_same(embed(folder), theirs.encode(TEXTS))


@pytest.mark.parametrize("stated", [{}, {"query": "query : "}, {"query": "query : ", "document": "passage : "}])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_an_index_has_the_prompts_of_both_sides(
    similarity: str, stated: dict[str, str], build: Peer, tmp_path: Path
) -> None:
    after = [dense(WIDTH, 7), peer_modules.Normalize()]
    theirs = build("bert", *after, prompts=stated, similarity_fn_name=similarity, truncate_dim=5)
    texts = [text for text in TEXTS if text]
    index = regard.index(texts, tmp_path / "index", model=tmp_path / "model")
    found = index.search(["the film"], top=len(texts)).results[0].hits
    expected = theirs.similarity(theirs.encode_query(["the film"]), theirs.encode_document(texts))[0]
    np.testing.assert_allclose([hit.score for hit in found], expected[[hit.row for hit in found]], atol=1e-5)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    record = index.manifest.model
    assert (record.prompt, record.query_prompt) == (stated.get("document", ""), stated.get("query", ""))
    index.add(["the film was dull"])
    again = index.search("the film", top=10, prompt="passage : ").results[0].hits
    expected = theirs.similarity(
        theirs.encode(["the film"], prompt="passage : "), theirs.encode_document([*texts, "the film was dull"])
    )[0]
    np.testing.assert_allclose([hit.score for hit in again], expected[[hit.row for hit in again]], atol=1e-5)
    once_more = index.search("the film", top=10).results[0].hits  # with the prompt of the index again
    assert {(hit.row, hit.score) for hit in found} < {(hit.row, hit.score) for hit in once_more}


def test_an_index_notices_other_modules(build: Peer, tmp_path: Path) -> None:
    build("bert", dense(WIDTH, 7))
    regard.index(["the film", "dull"], tmp_path / "index", model=tmp_path / "model")
    build("bert", dense(WIDTH, 7))  # with other weights
    with pytest.raises(InputError, match="other weights, modules"):
        regard.open_index(tmp_path / "index").search("the film")


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarity_is_that_of_the_folder(name: str, build: Peer, tmp_path: Path) -> None:
    theirs = build("bert", similarity_fn_name=name)
    texts = [text for text in TEXTS if text]
    vectors = theirs.encode(texts)
    found = regard.embed(texts, model=tmp_path / "model").similarity()
    np.testing.assert_allclose(found, theirs.similarity(vectors, vectors), atol=1e-4)


def test_an_export_keeps_modules_and_prompts(build: Peer, tmp_path: Path) -> None:
    after = [dense(WIDTH, 7, use_residual=True), peer_modules.LayerNorm(7), peer_modules.Normalize()]
    prompts = {"query": "query : "}
    options: dict[str, Any] = {"prompts": prompts, "default_prompt_name": "query", "truncate_dim": 5}
    theirs = build("bert", *after, pooling="weightedmean", include_prompt=False, **options)
    loaded = load_model(tmp_path / "model")
    result = drain(export(loaded, tmp_path / "copy", format="sentence-transformers"))
    assert result.largest_difference < 1e-6
    again = peer.SentenceTransformer(str(tmp_path / "copy"), device="cpu")
    for name in (None, "query"):
        assert_same(again.encode(TEXTS, prompt_name=name), theirs.encode(TEXTS, prompt_name=name))
        assert_same(embed(tmp_path / "copy", prompt_name=name), theirs.encode(TEXTS, prompt_name=name))


def test_a_service_follows_the_folder(build: Peer, tmp_path: Path) -> None:
    """Requests with several prompts share a batch, of which the pooling leaves out different numbers of tokens."""
    prompts = {"query": "query : ", "long": "the query was so long : "}
    theirs = build("bert", dense(WIDTH, 7), include_prompt=False, prompts=prompts, default_prompt_name="long")
    service = EmbeddingService(load_model(tmp_path / "model"), precision="fp32")
    shared: dict[str, Any] = {"inputs": TEXTS, "truncate": True, "normalize": False, "param": "input"}
    requests = [service.prepare({**shared, "prompt_name": name}) for name in ("query", None, "long")]
    results = iter(service.compute([part for one in requests for _, part in one.parts]))
    for request, name in zip(requests, ("query", "long", "long"), strict=True):
        data, width = request.finish([next(results) for _ in request.parts])
        assert_same(np.frombuffer(data, np.float32).reshape(-1, width), theirs.encode(TEXTS, prompt_name=name))
    with pytest.raises(RequestError, match="no prompt 'doc'"):
        service.prepare({**shared, "prompt_name": "doc"})
    with pytest.raises(RequestError, match="token ids have no prompt"):
        service.prepare({**shared, "inputs": [[5, 6]]})


def test_a_continued_job_notices_another_prompt_and_other_modules(build: Peer, tmp_path: Path) -> None:
    build("bert", dense(WIDTH, 7), prompts={"query": "query : "})
    (tmp_path / "in.txt").write_text("the film\ngood\n")
    source, output = tmp_path / "in.txt", tmp_path / "out.npy"
    regard.embed(source, model=tmp_path / "model", output=output)
    with pytest.raises(InputError, match="prompt was None and is 'query : '"):
        regard.embed(source, model=tmp_path / "model", output=output, prompt_name="query")
    build("bert", dense(WIDTH, 7), prompts={"query": "query : "})  # with other weights
    with pytest.raises(InputError, match="the model"):
        regard.embed(source, model=tmp_path / "model", output=output)


def test_token_vectors_know_where_the_text_begins(build: Peer, tmp_path: Path) -> None:
    theirs = build("bert", prompts={"query": "query : "}, default_prompt_name="query")
    (found,) = Embedder(tmp_path / "model", pooling="none", device="cpu").transform(["the film"])
    assert found.tokens == ["[CLS]", "query", ":", "the", "film", "[SEP]"]
    assert [tuple(pair) for pair in found.offsets] == [(0, 0), (0, 0), (0, 0), (0, 3), (4, 8), (0, 0)]
    assert list(found.words) == [-1, -1, -1, 0, 1, -1]
    np.testing.assert_allclose(found.vectors, theirs.encode("the film", output_value="token_embeddings"), atol=1e-5)


# Every key of every file that sentence-transformers writes, with what becomes of another value.
IGNORED = {  # changes no vector
    "modules.json": {"idx", "name", "kwargs"},
    "config_sentence_transformers.json": {"__version__", "requirements"},
    "sentence_bert_config.json": {"unpad_inputs"},
    "1_Pooling/config.json": {"embedding_dimension"},
    "2_Dense/config.json": set(),
    "3_LayerNorm/config.json": set(),
    "4_Dropout/config.json": {"dropout"},
    "5_Normalize/config.json": set(),
}
OTHER: dict[str, Any] = {  # another value of a key that is followed, or that is refused
    "path": "7_Elsewhere",
    "type": "sentence_transformers.models.CNN",
    "prompts": {"query": "passage : "},
    "default_prompt_name": "passage",
    "similarity_fn_name": "dot",
    "truncate_dim": 3,
    "model_type": "SparseEncoder",
    "transformer_task": "fill-mask",
    "modality_config": {"text": {"method": "get_text_features", "method_output_name": "text_embeds"}},
    "module_output_name": "token_embeddings",
    "sentence_bert_config.json:module_output_name": "sentence_embedding",
    "module_input_name": "token_embeddings",
    "processing_kwargs": {"text": {"max_length": 5}},
    "query_length": 5,
    "document_length": 5,
    "query_expansion": {"strategy": "fixed", "length": 5},
    "pooling_mode": "max",
    "include_prompt": False,
    "in_features": 5,
    "out_features": 5,
    "dimension": 5,
    "bias": False,
    "activation_function": "torch.nn.modules.activation.ReLU",
    "use_residual": True,
}


@pytest.mark.parametrize("file", IGNORED)
def test_every_key_is_used_or_harmless_or_refused(file: str, build: Peer, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    after = [dense(WIDTH, 7), peer_modules.LayerNorm(7), peer_modules.Dropout(0.5), peer_modules.Normalize()]
    build("bert", *after, prompts={"query": "query : "}, default_prompt_name="query", truncate_dim=5)
    written = {str(path.relative_to(folder)) for path in folder.rglob("*.json")}
    of_the_model = {"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert written - of_the_model == set(IGNORED), "sentence-transformers writes another file"
    path = folder / file
    document = json.loads(path.read_text())
    entry = document[2] if isinstance(document, list) else document
    possible = {"sentence_bert_config.json": peer_modules.Transformer, "2_Dense/config.json": peer_modules.Dense}
    keys = {*entry, *(possible[file].config_keys if file in possible else ())}
    before = embed(folder, TEXTS[:1])
    for key in keys:
        old = entry.get(key)
        # A KeyError here: say what becomes of a new key.
        entry[key] = "other" if key in IGNORED[file] else OTHER.get(f"{file}:{key}", OTHER.get(key)) or OTHER[key]
        path.write_text(json.dumps(document))
        try:
            found = embed(folder, TEXTS[:1])
            same = found.shape == before.shape and np.allclose(found, before, atol=1e-6)
            stated = read_sentence_settings(folder)
        except InputError as error:
            assert key in str(error) or key in (
                "path",
                "type",
                "in_features",
                "out_features",
                "dimension",
                "bias",
                "use_residual",
            ), error
        else:
            if key == "similarity_fn_name":
                assert stated.similarity == OTHER[key]
            else:
                assert same is (key in IGNORED[file]), key
        entry[key] = old
    entry["of_tomorrow"] = 1
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="of_tomorrow is 1"):
        embed(folder, TEXTS[:1])


def write_model2vec(folder: Path, *, normalize: bool, **tensors: Any) -> None:
    """The files that model2vec writes."""
    (folder / "1_Normalize").mkdir(parents=True)
    save_file({name: torch.as_tensor(value) for name, value in tensors.items()}, folder / "model.safetensors")
    tokenizer_of("bert").backend_tokenizer.save(str(folder / "tokenizer.json"))
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": normalize, "hidden_dim": 9}
    (folder / "config.json").write_text(json.dumps(config))
    kinds = ["StaticEmbedding", *(["Normalize"] if normalize else [])]
    modules = [
        {"idx": i, "name": str(i), "path": "1_Normalize" if i else ".", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))


STATIC = [text for text in TEXTS if text]  # a text without tokens has no mean


@pytest.mark.parametrize("place", ["", "0_StaticEmbedding"])
@pytest.mark.parametrize("length", [None, 5])
def test_static_embeddings(length: int | None, place: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    pipeline = tokenizer_of("bert").backend_tokenizer
    if length:
        pipeline.enable_truncation(length)
    static = peer_modules.StaticEmbedding(pipeline, embedding_dim=9)
    folder = tmp_path / "model"
    prompts = {"query": "query : "}
    theirs = peer.SentenceTransformer(modules=[static, dense(9, 4)], device="cpu", prompts=prompts, truncate_dim=3)
    theirs.save(str(folder), create_model_card=False)
    if place:  # as older versions saved it
        (folder / place).mkdir()
        for name in ("model.safetensors", "tokenizer.json"):
            shutil.move(folder / name, folder / place)
        modules = json.loads((folder / "modules.json").read_text())
        modules[0]["path"] = place
        (folder / "modules.json").write_text(json.dumps(modules))
    for name in (None, "query"):
        assert_same(embed(folder, STATIC, prompt_name=name), theirs.encode(STATIC, prompt_name=name))
    index = regard.index(STATIC, model=folder)
    assert index.search("i ing", top=1).results[0].hits[0].score <= 1
    with pytest.raises(InputError, match="has no tokens"):
        embed(folder, ["the film", ""])


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("quantized", [True, False])
def test_model2vec(quantized: bool, normalize: bool, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(2)
    folder, size = tmp_path / "model", len(WORDS)
    tensors: dict[str, Any] = {"embeddings": torch.randn(size, 9, generator=generator).half()}
    if quantized:
        tensors = {
            "embeddings": torch.randn(6, 9, generator=generator),
            "mapping": torch.randint(0, 6, (size,), generator=generator),
            "weights": torch.rand(size, generator=generator).double(),
        }
    write_model2vec(folder, normalize=normalize, **tensors)
    theirs = peer.SentenceTransformer(str(folder), device="cpu").encode(STATIC)
    np.testing.assert_allclose(embed(folder, STATIC), theirs, atol=1e-5 if quantized else 1e-3)  # theirs adds in fp16
    found = regard.embed(STATIC, model=folder).vectors
    (folder / "modules.json").unlink()
    np.testing.assert_array_equal(regard.embed(STATIC, model=folder).vectors, found)


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        ({"embeddings": np.zeros((5, 9), dtype=np.int8)}, "torch.int8"),
        ({"vectors": np.zeros((5, 9), dtype=np.float32)}, "found vectors"),
        ({"embeddings": np.zeros((5, 9), dtype=np.float32), "mapping": np.full(22, 5)}, "mapping names rows"),
        ({"embeddings": np.zeros((5, 9), dtype=np.float32), "weights": np.zeros(4)}, "4 weights for 5 tokens"),
    ],
)
def test_damaged_static_embeddings(tensors: dict[str, Any], named: str, tmp_path: Path) -> None:
    write_model2vec(tmp_path / "model", normalize=False, **tensors)
    with pytest.raises(InputError, match=named):
        embed(tmp_path / "model")
