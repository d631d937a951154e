"""Folders for sentence-transformers, output folders, and models that cannot be exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.errors import InputError
from regard.models import Bert
from regard.tasks.fine_tuned_model import FineTunedModel
from tests.inference.folders import tiny_gpt

TEXTS = ["the film", "we love the long day at the water, and they write about it, as each of us has said", "good", ""]


def export(model: Any, output: Path, **options: Any) -> Any:
    return regard.export(model, output=output, format="sentence-transformers", **options)


def encode(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("bert", {}),
        ("bert", {"pooling": "cls", "max_length": 9}),
        ("distilbert", {"pooling": "max", "normalize": True}),
        ("roberta", {"normalize": True, "max_length": 12}),
    ],
)
def test_sentence_transformers_gives_the_same_vectors(
    family: str, options: dict[str, Any], folders: dict[str, Path], tmp_path: Path
) -> None:
    result = export(folders[family], tmp_path / "vectors", **options)
    expected = regard.Embedder(folders[family], **options).transform(TEXTS)
    assert np.abs(encode(tmp_path / "vectors") - expected).max() < 1e-5
    assert np.array_equal(regard.Embedder(tmp_path / "vectors").transform(TEXTS), expected)
    assert result.outputs == ["sentence_embedding"] and result.largest_difference == 0.0


def test_what_the_folder_states_is_kept(folders: dict[str, Path], tmp_path: Path) -> None:
    export(folders["bert"], tmp_path / "first", pooling="max", normalize=True, max_length=11)
    export(tmp_path / "first", tmp_path / "second")
    for name in ("1_Pooling/config.json", "modules.json", "sentence_bert_config.json", "tokenizer_config.json"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_the_encoder_of_a_fine_tuned_model(fine_tuned: Callable[..., FineTunedModel], tmp_path: Path) -> None:
    model = fine_tuned("classify")
    export(model, tmp_path / "vectors")
    assert np.abs(encode(tmp_path / "vectors") - regard.Embedder(model).transform(TEXTS)).max() < 1e-5


def test_an_earlier_export_is_replaced_and_other_files_stay(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    first = export(folders["bert"], folder)
    (folder / "notes.txt").write_text("mine")
    second = export(folders["roberta"], folder, normalize=True)
    assert "vocab.txt" in first.files and "vocab.txt" not in second.files
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert present == {*second.files, "notes.txt", "regard.json"}
    assert regard.load(folder)[0].config.family == "roberta"


def test_a_folder_with_other_content_is_refused(
    folders: dict[str, Path], fine_tuned: Callable[..., FineTunedModel], tmp_path: Path
) -> None:
    fine_tuned("classify").save(tmp_path / "model")
    before = {path: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    with pytest.raises(InputError, match="is not empty"):
        export(tmp_path / "model", tmp_path / "model")
    assert {path: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


def test_models_that_are_no_encoders_are_refused(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    gpt = tiny_gpt(tmp_path_factory.mktemp("gpt"))
    for model in (gpt, "regard-digits", "regard-de-en", "regard-elmo"):
        for name in ("onnx", "sentence-transformers"):
            with pytest.raises(InputError, match=r"cannot be exported; .*BERT, .*DistilBERT, .*RoBERTa"):
                regard.export(model, format=name, output=tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


def test_a_fine_tuned_model_has_logits_and_no_pooling(
    fine_tuned: Callable[..., FineTunedModel], tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="needs the extra `onnx`")
    with pytest.raises(InputError, match="logits; pooling, normalize and max_length"):
        regard.export(fine_tuned("classify"), output=tmp_path / "export", pooling="mean")


def test_a_model_without_a_tokenizer_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    model, _ = regard.load(folders["bert"])
    assert isinstance(model, Bert)
    with pytest.raises(InputError, match="no tokenizer"):
        export((model, None), tmp_path / "export")
    assert list(tmp_path.iterdir()) == []
