"""`Embedder` as a scikit-learn transformer, its defaults, and settings of sentence-transformers folders."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import regard
from regard import Embedder
from regard.errors import InputError
from regard.inference.embedding.engine import TokenVectors

TEXTS = ["the film was funny", "dull", "they love it so", "no good", "a long dull way", "she said it was good"]
LABELS = [1, 0, 1, 0, 0, 1]


@pytest.fixture
def embedder(tiny_bert_folder: Path) -> Embedder:
    return Embedder(tiny_bert_folder, device="cpu")


def test_vectors_of_texts(embedder: Embedder) -> None:
    assert embedder.fit() is embedder
    assert embedder.fit(TEXTS, LABELS) is embedder
    vectors = embedder.transform(TEXTS)
    assert vectors.shape == (6, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(embedder.fit_transform(TEXTS, LABELS), vectors)
    np.testing.assert_array_equal(embedder.transform(np.array(TEXTS)), vectors)
    np.testing.assert_array_equal(embedder.transform(iter(TEXTS)), vectors)


def test_a_loaded_pair_equals_its_folder(tiny_bert_folder: Path, embedder: Embedder) -> None:
    pair = Embedder(regard.load(tiny_bert_folder), device="cpu")
    np.testing.assert_array_equal(pair.transform(TEXTS), embedder.transform(TEXTS))


def test_pooling_none_gives_tokens(tiny_bert_folder: Path) -> None:
    found = Embedder(tiny_bert_folder, pooling="none").transform(["dull film", "a"])
    assert [type(one) for one in found] == [TokenVectors, TokenVectors]
    assert found[0].tokens == ["[CLS]", "dull", "film", "[SEP]"]


@pytest.mark.parametrize(("texts", "message"), [("one text", "put it in a list"), (["a", 3], "got int in row 1")])
def test_invalid_texts(texts: Any, message: str, embedder: Embedder) -> None:
    with pytest.raises(InputError, match=message):
        embedder.transform(texts)


def test_the_default_model_is_built_in() -> None:
    embedder = Embedder(device="cpu")
    near, far = "The king was on his throne.", "Water boils at a hundred degrees."
    one, two, three = embedder.fit_transform(["The queen sat on her throne.", near, far])
    assert one.shape == (384,)
    assert np.corrcoef(one, two)[0, 1] > np.corrcoef(one, three)[0, 1]


def test_parameters(embedder: Embedder, tiny_bert_folder: Path) -> None:
    assert embedder.get_params() == {
        "model": tiny_bert_folder,
        "layers": -1,
        "pooling": None,
        "normalize": None,
        "max_length": None,
        "prompt": None,
        "prompt_name": None,
        "device": "cpu",
        "precision": None,
    }
    first = embedder.transform(TEXTS)
    assert embedder.set_params(layers="concat(1:)") is embedder
    changed = embedder.transform(TEXTS)  # a changed parameter takes effect immediately
    assert changed.shape == (6, 64)
    np.testing.assert_allclose(changed[:, 32:], first, atol=1e-6)
    with pytest.raises(InputError, match="no parameter 'layer'; did you mean 'layers'"):
        embedder.set_params(layer=0)
    assert repr(embedder).startswith("Embedder(model=")
    assert "layers='concat(1:)'" in repr(embedder)


def test_the_model_is_loaded_once(embedder: Embedder) -> None:
    embedder.fit()
    held = embedder._engine()
    embedder.transform(TEXTS)
    assert embedder._engine() is held


@pytest.mark.parametrize("copy", [clone, lambda one: pickle.loads(pickle.dumps(one))], ids=["clone", "pickle"])
@pytest.mark.parametrize("as_pair", [False, True])
def test_copies(copy: Any, as_pair: bool, tiny_bert_folder: Path) -> None:
    model: Any = regard.load(tiny_bert_folder) if as_pair else tiny_bert_folder
    original = Embedder(model, layers="sum(1:)", pooling="cls", normalize=True).fit()
    copied = copy(original)
    assert (copied.layers, copied.pooling, copied.normalize) == ("sum(1:)", "cls", True)
    np.testing.assert_allclose(copied.transform(TEXTS), original.transform(TEXTS), atol=1e-6)
    assert len(pickle.dumps(Embedder(tiny_bert_folder).fit())) < 1000  # the loaded model is not in it


def test_a_pipeline_learns_from_text(embedder: Embedder) -> None:
    pipeline = make_pipeline(embedder, LogisticRegression(C=100.0)).fit(TEXTS, LABELS)
    assert list(pipeline.predict(TEXTS)) == LABELS
    assert pipeline.score(TEXTS, LABELS) == 1.0


def test_a_grid_search_over_layers(embedder: Embedder) -> None:
    pipeline = Pipeline([("embed", embedder), ("classify", LogisticRegression())])
    grid = {"embed__layers": [0, "sum(1:)"], "embed__pooling": ["mean", "cls"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(TEXTS * 2, LABELS * 2)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_params_["embed__layers"] in (0, "sum(1:)")


class NumericInputEmbedder(Embedder):
    """scikit-learn's checks use numeric tables and skip estimators of text, so each row is converted to text here.

    Everything else is Embedder's own behavior.
    """

    def transform(self, X: Any) -> Any:
        rows = [" ".join(f"{value:.2f}" for value in np.atleast_1d(row)) for row in np.asarray(X, dtype=float)]
        return super().transform(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array, tags.input_tags.string = True, False, False
        return tags


NO_TABLE = "texts have no columns to count or to compare"
NO_NUMBERS = "texts hold no numbers to refuse"
CANNOT_APPLY = {
    "check_n_features_in": NO_TABLE,
    "check_n_features_in_after_fitting": NO_TABLE,
    "check_fit1d": "a list of texts has one dimension",
    "check_fit2d_predict1d": "a list of texts has one dimension",
    "check_complex_data": NO_NUMBERS,
    "check_dtype_object": NO_NUMBERS,
    "check_estimators_nan_inf": NO_NUMBERS,
    "check_estimator_sparse_tag": "there are no sparse texts",
    "check_estimators_empty_data_messages": "nothing is learned from the texts of fit, and none are needed",
}
# This check compares joblib hashes, which differ between copies of a torch module.
OF_A_PAIR = CANNOT_APPLY | {"check_estimators_overwrite_params": "a torch module and its copy have two hashes"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("as_pair", "expected"), [(False, CANNOT_APPLY), (True, OF_A_PAIR)], ids=["folder", "pair"])
def test_scikit_learns_own_checks(as_pair: bool, expected: dict[str, str], tiny_bert_folder: Path) -> None:
    estimator = NumericInputEmbedder(regard.load(tiny_bert_folder) if as_pair else tiny_bert_folder, device="cpu")
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=expected)
    assert {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"} == {}
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(expected)
    assert sum(result["status"] == "passed" for result in results) > 30


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_check_estimator_on_the_estimator_itself(tiny_bert_folder: Path) -> None:
    """It skips nearly all checks for text input; the test above runs those."""
    results = check_estimator(Embedder(regard.load(tiny_bert_folder)), on_skip=None)
    assert [result["status"] for result in results] == ["passed"] * len(results)


def test_scikit_learn_tags_declare_text_input(embedder: Embedder) -> None:
    tags = embedder.__sklearn_tags__()
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert not tags.requires_fit


@pytest.fixture
def sentence_folder(tiny_bert_folder: Path, tmp_path: Path) -> Path:
    """The tiny model in sentence-transformers' format, with [CLS] pooling and a length of 8 tokens."""
    folder = tmp_path / "sentence"
    shutil.copytree(tiny_bert_folder, folder)
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 8}), encoding="utf-8")
    return folder


def test_settings_of_the_folder_are_the_default(sentence_folder: Path, tiny_bert_folder: Path) -> None:
    texts = [*TEXTS, "the film was so long that they could not see it all"]
    stated = Embedder(tiny_bert_folder, pooling="cls", max_length=8).transform(texts)
    np.testing.assert_array_equal(Embedder(sentence_folder).transform(texts), stated)
    assert np.abs(stated - Embedder(tiny_bert_folder, max_length=8).transform(texts)).max() > 0.1


def test_arguments_override_the_folder(sentence_folder: Path, tiny_bert_folder: Path) -> None:
    wanted = Embedder(tiny_bert_folder, pooling="mean", max_length=5).transform(TEXTS)
    np.testing.assert_array_equal(Embedder(sentence_folder, pooling="mean", max_length=5).transform(TEXTS), wanted)


def test_the_default_pooling_survives_cloning(sentence_folder: Path) -> None:
    """The clone of an embedder without an explicit pooling has no explicit pooling either."""
    original = Embedder(sentence_folder)
    for copied in (clone(original), pickle.loads(pickle.dumps(original))):
        np.testing.assert_array_equal(copied.transform(TEXTS), original.transform(TEXTS))


@pytest.mark.parametrize("texts", ["one text", None, 3])
def test_other_input_is_refused(texts: Any, tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="expected a list of texts"):
        Embedder(tiny_bert_folder).transform(texts)


def test_a_non_numeric_length_is_refused(tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="max_length is '5'"):
        Embedder(tiny_bert_folder, max_length="5").fit()  # type: ignore[arg-type]


def test_a_folder_without_a_tokenizer_is_refused(tiny_bert_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny_bert_folder / name, tmp_path)
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        Embedder(tmp_path).fit()


def test_an_unsupported_module_after_the_pooling_is_reported(sentence_folder: Path) -> None:
    modules = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "WordWeights")]
    (sentence_folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    with pytest.raises(InputError, match=r"modules\.json: unsupported modules: WordWeights"):
        Embedder(sentence_folder).fit()
    assert Embedder(sentence_folder, pooling="mean").transform(TEXTS).shape[0] == len(TEXTS)


def test_a_parameter_set_later_takes_effect(sentence_folder: Path, tiny_bert_folder: Path) -> None:
    embedder = Embedder(sentence_folder, max_length=5).fit()
    wanted = Embedder(tiny_bert_folder, pooling="mean", max_length=5).transform(TEXTS)
    np.testing.assert_array_equal(embedder.set_params(pooling="mean").transform(TEXTS), wanted)


def test_the_default_pooling_survives_pickling(sentence_folder: Path) -> None:
    embedder = Embedder(sentence_folder)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(embedder)).transform(TEXTS), embedder.transform(TEXTS))
