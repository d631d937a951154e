"""`describe_model` of every family that is tested: what loads is not refused, and nothing of the weights is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save, save_file

import regard
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.inference.model_description import describe_model
from regard.models.family import family_of
from regard.tasks.fine_tuned_model import load_fine_tuned
from regard.text import Tokenizer
from tests.checkpoints.conftest import FakeHub, fake_hub  # noqa: F401
from tests.parity.published import ENCODERS, publish
from tests.parity.references import REFERENCES


@pytest.mark.parametrize("name", REFERENCES)
def test_every_reference_is_described_as_it_loads(name: str, tmp_path: Path) -> None:
    REFERENCES[name]().save_pretrained(tmp_path)
    described = describe_model(str(tmp_path))
    assert all("tokenizer" in reason or "subword" in reason or ".spm" in reason for reason in described.refused)
    if not described.refused:
        loaded = load_model(tmp_path)
        family = family_of(loaded.model)
        assert family is not None and described.family == family.name
        assert described.num_parameters == sum(one.numel() for one in loaded.model.parameters())


@pytest.mark.parametrize("family", [*ENCODERS, "gpt2", "llama", "gemma3-text"])
def test_published_classifiers(family: str, tmp_path: Path) -> None:
    publish(family, "SequenceClassification", tmp_path, labels=["low", "middle", "high"])
    described = describe_model(str(tmp_path))
    assert described.refused == [] and described.labels == ["low", "middle", "high"]
    assert described.task == "classify" and {"predict", "serve"} <= set(described.suits)
    assert described.num_parameters == sum(one.numel() for one in load_fine_tuned(tmp_path).model.parameters())


@pytest.mark.parametrize(
    ("labels", "suits", "not_suits"),
    [
        (["entailment", "neutral", "contradiction"], {"classify", "predict"}, {"rerank"}),
        (["LABEL_0"], {"rerank", "predict", "export", "train"}, {"classify"}),
        (["a", "b"], {"predict"}, {"rerank", "classify"}),
    ],
)
def test_which_pair_models_rerank_and_classify(
    labels: list[str], suits: set[str], not_suits: set[str], tmp_path: Path
) -> None:
    publish("bert", "SequenceClassification", tmp_path, labels=labels)
    described = describe_model(str(tmp_path))
    assert suits <= set(described.suits) and not not_suits & set(described.suits)


def test_a_sparse_encoder(tmp_path: Path) -> None:
    publish("bert", "MaskedLM", tmp_path)
    kinds = ("sentence_transformers.models.Transformer", "sentence_transformers.models.SpladePooling")
    modules = [{"path": f"{number}_Pool" * number, "type": kind} for number, kind in enumerate(kinds)]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "SparseEncoder"}))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"transformer_task": "fill-mask"}))
    (tmp_path / "1_Pool").mkdir()
    (tmp_path / "1_Pool" / "config.json").write_text(json.dumps({"pooling_strategy": "max"}))
    described = describe_model(str(tmp_path))
    assert described.refused == [] and described.pooling == "max"
    assert {"embed", "search"} <= set(described.suits) and not {"map", "classify"} & set(described.suits)
    (tmp_path / "1_Pool" / "config.json").write_text(json.dumps({"pooling_strategy": "least"}))
    described = describe_model(str(tmp_path))
    assert len(described.refused) == 1 and "least" in described.refused[0] and "embed" not in described.suits


def test_a_head_that_lacks_a_tensor(tmp_path: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["classifier.bias"]
    save_file(tensors, path)
    (reason,) = describe_model(str(tmp_path)).refused
    assert "classifier.bias" in reason
    with pytest.raises(InputError) as caught:
        load_model(tmp_path)
    assert reason == str(caught.value)


def test_a_classifier_that_cannot_be_used_gives_no_word_vectors(tmp_path: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "id2label": {"0": "a", "2": "b"}}))
    described = describe_model(str(tmp_path))
    assert described.description == "" and "id2label" in described.refused[0]


def test_a_multi_vector_model_reranks(tmp_path: Path) -> None:
    publish("bert", "MaskedLM", tmp_path)
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "MultiVectorEncoder"}))
    described = describe_model(str(tmp_path))
    assert "MaxSim" in described.description and not {"embed", "export"} & set(described.suits)


def test_modules_and_prompts_of_the_hub(fake_hub: FakeHub, tmp_path: Path) -> None:  # noqa: F811
    """The headers of the weights of modules are read too."""
    peer = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    publish("bert", "SequenceClassification", tmp_path / "source")
    encoder = modules.Transformer(str(tmp_path / "source"))
    width = encoder.get_embedding_dimension()
    model = peer.SentenceTransformer(
        modules=[encoder, modules.Pooling(width, "cls"), modules.Dense(width, 7), modules.Normalize()],
        prompts={"query": "find: ", "document": ""},
        default_prompt_name="query",
    )
    model.save(str(tmp_path / "saved"))
    files = [path for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    names = {path.relative_to(tmp_path / "saved").as_posix(): path.read_bytes() for path in files}
    fake_hub.models["user/dense"] = names
    described = describe_model("user/dense")
    sizes = [path.stat().st_size for path in files if path.name == "model.safetensors"]
    assert len(sizes) == 2 and described.download == described.size == sum(sizes)
    assert described.refused == [] and described.pooling == "cls" and described.modules == ["Dense"]
    assert described.prompts["query"] == "find: " and described.default_prompt_name == "query"
    assert regard.embed(["a film"], model="user/dense").vectors.shape == (1, 7)
    assert describe_model("user/dense").download == 0
    names = fake_hub.models["user/dense"]
    names["2_Dense/pytorch_model.bin"] = names.pop("2_Dense/model.safetensors")
    described = describe_model("user/dense")
    assert not described.checked_weights and described.refused == [] and described.prompts["query"] == "find: "


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"model_type": "bert", "hidden_size": 1e999}', '{"auto_map": {"AutoModel": "x.Y"}}']
)
def test_a_config_that_cannot_be_used(text: str, tmp_path: Path) -> None:
    publish("bert", "SequenceClassification", tmp_path)
    (tmp_path / "config.json").write_text(text)
    (reason,) = describe_model(str(tmp_path)).refused
    assert "config.json" in reason


@pytest.mark.parametrize("folder", ["", "0_StaticEmbedding"])
@pytest.mark.parametrize("model2vec", [False, True])
def test_static_embeddings_of_the_hub(
    fake_hub: FakeHub,  # noqa: F811
    tiny_bert_folder: Path,
    folder: str,
    model2vec: bool,
) -> None:
    start = f"{folder}/" if folder else ""
    size = Tokenizer.open(tiny_bert_folder).size
    tensors = {"embedding.weight": torch.randn(size, 5)}
    if model2vec:
        tensors = {"embeddings": torch.randn(3, 5), "mapping": torch.arange(size) % 3, "weights": torch.rand(size)}
    fake_hub.models["user/static"] = {
        "modules.json": json.dumps([{"path": folder, "type": "sentence_transformers.models.StaticEmbedding"}]).encode(),
        f"{start}tokenizer.json": (tiny_bert_folder / "tokenizer.json").read_bytes(),
        f"{start}model.safetensors": save(tensors),
    }
    described = describe_model("user/static")
    assert described.refused == [] and described.download == len(save(tensors)) and "search" in described.suits
    assert regard.embed(["a film"], model="user/static").vectors.shape == (1, 5)
