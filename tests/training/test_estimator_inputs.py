"""The inputs of `Embedder`, `TextClassifier` and `Tagger`: a table of what is read, and what is refused and why."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from regard import Embedder, Tagger, TextClassifier
from regard.data.text_inputs import read_column, read_texts
from regard.errors import InputError

TEXTS = ["a good film", "dull", "the film was long"]
PAIRS = [("a good film", "dull"), ("dull", "long"), ("the film", "was long")]
NAN = float("nan")

ACCEPTED: list[tuple[str, Callable[[], Any]]] = [
    ("list", lambda: list(TEXTS)),
    ("tuple", lambda: tuple(TEXTS)),
    ("generator", lambda: (text for text in TEXTS)),
    ("Series", lambda: pd.Series(TEXTS, index=[7, 8, 9])),
    ("Series of strings", lambda: pd.Series(TEXTS, dtype="string")),
    ("categorical Series", lambda: pd.Series(TEXTS, dtype="category")),
    ("array of str", lambda: np.array(TEXTS)),
    ("array of objects", lambda: np.array(TEXTS, dtype=object)),
    ("array (n, 1)", lambda: np.array(TEXTS, dtype=object).reshape(-1, 1)),
    ("DataFrame with one column", lambda: pd.DataFrame({"review": TEXTS})),
    ("DataFrame with a number as name", lambda: pd.DataFrame(TEXTS)),
]
PAIRS_ACCEPTED: list[tuple[str, Callable[[], Any]]] = [
    ("list of tuples", lambda: list(PAIRS)),
    ("list of lists", lambda: [list(pair) for pair in PAIRS]),
    ("generator", lambda: iter(PAIRS)),
    ("Series of tuples", lambda: pd.Series(PAIRS)),
    ("array (n, 2)", lambda: np.array(PAIRS)),
    ("DataFrame with two columns", lambda: pd.DataFrame(PAIRS, columns=["premise", "hypothesis"])),
]
FRAME = pd.DataFrame({"review": TEXTS, "title": TEXTS, "stars": [1, 2, 3]})
REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("str", lambda: "a good film", r"got one str; put it in a list: \['a good film'\]"),
    ("bytes", lambda: b"a good film", "got one bytes"),
    ("dict", lambda: {"review": TEXTS}, "got one dict; give the texts of one key"),
    ("set", lambda: set(TEXTS), "got one set; put the texts in a list"),
    ("number", lambda: 3, "got one int"),
    ("None", lambda: None, "got one NoneType"),
    (
        "DataFrame with three columns",
        lambda: FRAME,
        r'got 3 columns \(review, title, stars\); choose .*frame\["review"\].*ColumnTransformer\(\[\("review", '
        r'(Embedder|TextClassifier)\(\), "review"\)\]\)',
    ),
    ("DataFrame without columns", lambda: pd.DataFrame(index=[0, 1]), "got 0 columns"),
    ("DataFrame of numbers", lambda: FRAME[["stars"]], "got int in row 0: '1'"),
    ("array (n, 3)", lambda: np.array([TEXTS]), "got 3 columns; choose"),
    ("array (n, 1, 1)", lambda: np.array(TEXTS).reshape(-1, 1, 1), r"an array of shape \(3, 1, 1\)"),
    ("Series of numbers", lambda: pd.Series([1, 2]), "got int in row 0"),
    ("list with a number", lambda: ["a", 3], "got int in row 1: '3'"),
    ("list with None", lambda: ["a", "b", None], "text of row 2 is missing"),
    ("Series with NaN", lambda: pd.Series(["a", NAN]), "text of row 1 is missing"),
    ("Series with NA", lambda: pd.Series(["a", pd.NA], dtype="string"), "text of row 1 is missing"),
    ("DataFrame with NaN", lambda: pd.DataFrame({"review": [NAN, "a"]}), "text of row 0 is missing"),
    ("triples", lambda: [("a", "b", "c")], "got 3 items in row 0"),
]


@pytest.fixture(scope="module")
def embedder(tiny_bert_folder: Path) -> Embedder:
    return Embedder(tiny_bert_folder)


@pytest.fixture(scope="module")
def classifier(tiny_bert_folder: Path) -> TextClassifier:
    return TextClassifier(str(tiny_bert_folder), epochs=1, device="cpu").fit(TEXTS, ["good", "bad", "bad"])


@pytest.mark.parametrize(("name", "make"), ACCEPTED, ids=[name for name, _ in ACCEPTED])
def test_texts(name: str, make: Callable[[], Any], embedder: Embedder, classifier: TextClassifier) -> None:
    assert read_texts(make()).present() == read_texts(make(), pairs=True).present() == TEXTS
    np.testing.assert_array_equal(clone(embedder).fit_transform(make()), embedder.transform(TEXTS))
    np.testing.assert_array_equal(classifier.predict_proba(make()), classifier.predict_proba(TEXTS))


@pytest.mark.parametrize(("name", "make"), PAIRS_ACCEPTED, ids=[name for name, _ in PAIRS_ACCEPTED])
def test_pairs(name: str, make: Callable[[], Any], embedder: Embedder) -> None:
    assert read_texts(make(), pairs=True).present() == PAIRS
    with pytest.raises(InputError, match=r"2 (items|columns)"):
        embedder.transform(make())


@pytest.mark.parametrize(("name", "make", "message"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_refused(
    name: str, make: Callable[[], Any], message: str, embedder: Embedder, classifier: TextClassifier
) -> None:
    with pytest.raises(InputError, match=message):
        embedder.transform(make())
    with pytest.raises(InputError, match=message):
        classifier.predict(make())


def test_a_frame_with_several_columns_is_refused_in_fit_too(embedder: Embedder, classifier: TextClassifier) -> None:
    with pytest.raises(InputError, match="got 3 columns"):
        clone(embedder).fit(FRAME)
    with pytest.raises(InputError, match="got 3 columns"):
        clone(classifier).fit(FRAME, ["a", "b", "c"])


def test_output_of_pandas(embedder: Embedder) -> None:
    expected = embedder.transform(TEXTS)
    frame = pd.DataFrame({"review": TEXTS}, index=[7, 8, 9])
    as_pandas = clone(embedder).set_output(transform="pandas")
    for one in (as_pandas, clone(as_pandas), pickle.loads(pickle.dumps(as_pandas))):
        found = one.fit_transform(frame)
        assert list(found.index) == [7, 8, 9]
        assert list(found.columns) == [f"embedder{index}" for index in range(32)] == list(one.get_feature_names_out())
        np.testing.assert_array_equal(found.to_numpy(), expected)
    assert isinstance(as_pandas.set_output(transform="default").transform(frame), np.ndarray)
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(clone(embedder).transform(TEXTS), pd.DataFrame)
    with pytest.raises(InputError, match="did you mean 'pandas'"):
        embedder.set_output(transform="panda")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no columns; choose another pooling"):
        Embedder(embedder.model, pooling="none").get_feature_names_out()


def test_names_of_columns(embedder: Embedder) -> None:
    one = clone(embedder).fit(pd.DataFrame({"review": TEXTS}))
    assert (list(one.feature_names_in_), one.n_features_in_) == (["review"], 1)
    with pytest.raises(InputError, match="should match those passed to fit, review; got text"):
        one.transform(pd.DataFrame({"text": TEXTS}))
    assert not hasattr(clone(embedder).fit(TEXTS), "feature_names_in_")


@pytest.mark.parametrize("column", ["review", ["review"]])
def test_column_transformer(column: Any, embedder: Embedder) -> None:
    columns = ColumnTransformer([("review", clone(embedder), column), ("rest", "passthrough", ["stars"])])
    found = columns.set_output(transform="pandas").fit_transform(FRAME)
    assert list(found.columns) == [*(f"review__embedder{index}" for index in range(32)), "rest__stars"]
    np.testing.assert_array_equal(found.iloc[:, :32].to_numpy(), embedder.transform(TEXTS))
    model = make_pipeline(columns, LogisticRegression()).fit(FRAME, [0, 1, 0])
    assert model.predict(FRAME).shape == (3,)
    assert list(model[:-1].get_feature_names_out()) == list(found.columns)


LABELS: list[tuple[str, Callable[[], Any]]] = [
    ("list", lambda: ["good", "bad", "bad"]),
    ("Series", lambda: pd.Series(["good", "bad", "bad"], index=[7, 8, 9])),
    ("array", lambda: np.array(["good", "bad", "bad"])),
    ("array (n, 1)", lambda: np.array([["good"], ["bad"], ["bad"]])),
    ("DataFrame", lambda: pd.DataFrame({"label": ["good", "bad", "bad"]})),
]


@pytest.mark.parametrize(("name", "make"), LABELS, ids=[name for name, _ in LABELS])
def test_labels(name: str, make: Callable[[], Any], classifier: TextClassifier) -> None:
    assert read_column(make()) == ["good", "bad", "bad"]
    assert classifier.score(TEXTS, make()) in (0, 1 / 3, 2 / 3, 1)


@pytest.mark.parametrize("missing", [None, NAN, np.nan, pd.NA, pd.NaT, "", "  ", "nan", "NaN", "<NA>"])
def test_missing_labels(missing: Any, tiny_bert_folder: Path) -> None:
    texts, labels = [*TEXTS, "film"], ["good", missing, "bad", "bad"]
    one = TextClassifier(str(tiny_bert_folder), epochs=1, device="cpu")
    with pytest.raises(InputError, match=r"1 row .*label \(row 1\): .*Classifier\(missing='skip'\)"):
        one.fit(texts, labels)


def test_missing_rows_are_skipped_and_counted(tiny_bert_folder: Path) -> None:
    texts = pd.Series([*TEXTS, None, "film"])
    labels = pd.Series([1, NAN, 0, 1, 0])
    one = TextClassifier(str(tiny_bert_folder), epochs=1, device="cpu", missing="skip")
    with pytest.warns(UserWarning, match=r"2 of 5 rows .*1 row .*text \(row 3\) .*1 row .*\(row 1\)"):
        one.fit(texts, labels)
    assert list(one.classes_) == [0.0, 1.0]
    with pytest.raises(InputError, match="text of row 3 is missing"):
        one.predict(texts)
    with pytest.raises(InputError, match="no texts with a label"), warnings.catch_warnings(action="ignore"):
        one.fit(["a"], [None])
    with pytest.raises(InputError, match="did you mean 'skip'"):
        clone(one).set_params(missing="skp").fit(["a"], ["b"])


def test_labels_that_differ_only_in_case_or_spaces(tiny_bert_folder: Path) -> None:
    one = TextClassifier(str(tiny_bert_folder), epochs=1, device="cpu")
    with pytest.warns(UserWarning, match=r"'positive' \(2\), ' positive ' \(1\).*'Positive' \(1\)"):
        one.fit([*TEXTS, "film", "long"], ["positive", "positive", "Positive", " positive ", "negative"])


def test_a_tagger(tiny_bert_folder: Path) -> None:
    sentences, tags = [["a", "film"], ["dull"]], [["O", "B-X"], ["O"]]
    one = Tagger(str(tiny_bert_folder), epochs=1, device="cpu")
    one.fit(pd.Series(sentences), pd.Series(tags))
    assert [len(found) for found in one.predict(pd.DataFrame({"words": sentences}))] == [2, 1]
    with pytest.raises(InputError, match="expected sentences as lists of words, got one str"):
        one.predict("a film")
    with pytest.raises(InputError, match=r"1 row without a label \(row 1\).*Tagger\(missing='skip'\)"):
        one.fit(sentences, [["O", "B-X"], None])
    with pytest.raises(InputError, match="sentence of row 1 is missing"):
        one.predict([["a"], None])
