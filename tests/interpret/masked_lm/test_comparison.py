"""Comparison of two sentences: stored logits against published percentages, and hand-computed selections."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.masked_lm import fill_blanks
from regard.interpret.masked_lm.charts import Chart, ChartAxes, notable_words
from regard.interpret.masked_lm.comparison import (
    CompletionsResult,
    GridResult,
    PairComparison,
    PairResult,
    compare_models,
    compare_stored,
    second_difference,
)
from regard.interpret.masked_lm.predictions import MaskedPrediction, read_predictions
from regard.interpret.masked_lm.sweep import SweepResult

Shared = Callable[[str], Path]
TOKENS = ["ox", "ice", "tea", "pie", "cat"]
A = [5.0, 4.0, 3.0, 0.0, -9.0]
B = [1.0, 4.5, 3.0, 2.0, -9.0]


def prediction(logits: list[float], text: str = "text _", model: str = "m") -> MaskedPrediction:
    values = np.array(logits, dtype=np.float32)
    return MaskedPrediction(text, model, values, float(np.log(np.exp(values.astype(np.float64)).sum())))


@pytest.fixture
def pair() -> PairComparison:
    return PairComparison(
        TOKENS, prediction(A, "Here they buy _"), prediction(B, "There they buy _"), ("Here", "There"), values="logits"
    )


def names(pair: PairComparison, number: int, chart: Chart) -> list[str]:
    return [TOKENS[index] for index in pair.visible(number, chart)]


def test_likelihoods_show_the_tokens_in_the_range_of_the_likeliest_tokens(pair: PairComparison) -> None:
    assert pair.extent(1) == (1.0, 5.0)  # ox is at 5 and 1, ice at 4 and 4.5
    assert names(pair, 1, "likelihoods") == ["ice", "ox", "tea"]  # tea is third in both, but within the range
    assert pair.extent(0) == (-9.0, 5.0)
    assert len(names(pair, 0, "likelihoods")) == 5


def test_differences_show_the_highest_means(pair: PairComparison) -> None:
    assert pair.mean.tolist() == [3.0, 4.25, 3.0, 1.0, -9.0]
    assert names(pair, 2, "differences") == ["ice", "ox"]  # ties: the earlier token
    assert names(pair, 0, "differences") == ["ice", "ox", "tea", "pie", "cat"]


def test_the_json_document(pair: PairComparison) -> None:
    document = pair.result(2, "differences").to_dict()
    assert list(document) == ["a", "b", "labels", "values", "caption", "tokens"]
    assert document["labels"] == ["Here", "There"]
    tokens = document["tokens"]
    assert isinstance(tokens, list)
    total = sum(np.exp(A))
    assert tokens[1] == {
        "token": "ox",
        "value_a": 5.0,
        "value_b": 1.0,
        "probability_a": pytest.approx(np.exp(5) / total),
        "probability_b": pytest.approx(np.exp(1) / sum(np.exp(B))),
        "mean": 3.0,
        "difference": 4.0,
    }


def test_captions_name_the_tokens_that_differ_most_to_either_side(pair: PairComparison) -> None:
    assert pair.caption(0, "differences") == (
        "m associates these potential purchases more with Here than There: ox. "
        "It associates these more with There than Here: pie."
    )
    same = PairComparison(TOKENS, prediction(A), prediction(A), ("x", "y"))
    assert same.caption(0, "differences") == "No likely word differs by a factor of 2 between x and y."


def test_direction_of_differences_and_of_second_differences(pair: PairComparison) -> None:
    axes = pair.axes()
    assert axes["likelihoods"].right == "__ likelihood, There sentence →"
    assert axes["likelihoods"].up == "__ likelihood, Here sentence →"
    assert axes["differences"].up == "Higher likelihood, Here sentence →"
    assert axes["differences"].down == "← Higher likelihood, There sentence"
    cells = PairComparison(TOKENS, pair.a, pair.b, ("1908 / he", "2018 / he"), kind="cells")
    assert cells.axes()["likelihoods"] == ChartAxes(right="1908 / he →", up="2018 / he →")
    assert cells.axes()["differences"].down == "← 1908 / he"


def test_difference_of_differences() -> None:
    first = PairComparison(TOKENS, prediction(A), prediction(B), ("a", "b"))
    second = PairComparison(TOKENS, prediction(B), prediction(A), ("c", "d"))
    tokens = second_difference(first, second, 2).tokens
    assert [astuple(one) for one in tokens] == [("ox", 4.0, -4.0, 8.0), ("ice", -0.5, 0.5, -1.0)]


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=3, max_size=40),
    st.integers(1, 8),
)
def test_charts_include_the_likeliest_tokens(logits: list[float], number: int) -> None:
    other = list(reversed(logits))
    tokens = [f"t{index}" for index in range(len(logits))]
    found = PairComparison(tokens, prediction(logits), prediction(other), ("a", "b"))
    likely = set(found.visible(number, "likelihoods").tolist())
    for values in (logits, other):
        assert set(sorted(range(len(values)), key=lambda index: (-values[index], index))[:number]) <= likely
    assert len(found.visible(number, "differences")) == min(number, len(logits))
    means = found.mean[found.visible(0, "likelihoods")]
    assert (np.diff(means) <= 0).all()


FOLDER = "fill-in-the-blank"
PUBLISHED = [  # softmax in percent, from SOURCE.txt
    ("in-texas-they-like-to-buy", {"things": 9.56, "beer": 4.06, "horses": 2.85}),
    ("in-new-york-they-like-to-buy", {"things": 31.64, "clothes": 3.31}),
    ("jane-worked-as-a", {"waitress": 17.08}),
    ("jim-worked-as-a", {"mechanic": 11.57}),
    ("in-1908-she-was-employed-as-a", {"teacher": 23.72, "nurse": 13.79}),
]


@pytest.mark.parametrize(("name", "percentages"), PUBLISHED)
def test_published_percentages(name: str, percentages: dict[str, float], shared_data: Shared) -> None:
    path = shared_data(f"{FOLDER}/{name}.json.gz")
    found = compare_stored([path, path], shared_data("vocab-bert-base-uncased/vocab.txt"))
    tokens = found.to_dict()["tokens"]
    assert isinstance(tokens, list)
    by_token = {token["token"]: token for token in tokens}
    for word, percent in percentages.items():
        assert round(100 * by_token[word]["probability_a"], 2) == percent
        assert by_token[word]["difference"] == 0


def test_texas_and_new_york_from_stored_logits(shared_data: Shared) -> None:
    paths = [shared_data(f"{FOLDER}/in-{state}-they-like-to-buy.json.gz") for state in ("texas", "new-york")]
    vocabulary = shared_data("vocab-bert-base-uncased/vocab.txt")
    found = compare_stored(paths, vocabulary, chart="differences")
    document = found.to_dict()
    assert (document["a"], document["labels"]) == ("in texas they like to buy _", ["texas", "new york"])
    tokens = document["tokens"]
    assert isinstance(tokens, list)
    assert len(tokens) == 30
    assert tokens[0]["token"] == "things"
    assert [token["mean"] for token in tokens] == sorted((token["mean"] for token in tokens), reverse=True)
    texts = ["In Texas, they like to buy _.", "In New York, they like to buy _."]
    named = compare_stored(paths, vocabulary, texts=texts).to_dict()
    assert named["labels"] == ["Texas", "New York"]
    assert "potential purchases more with Texas than New York: cattle" in str(named["caption"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1.0, 2.0]", "holds 2 logits"),
        ('{"a": 1}', "expected one JSON list"),
        ("[1, NaN, 3]", "number 2 is not"),
        ("[1, true, 3]", "expected one JSON list"),
        ("nonsense", "cannot be read as JSON"),
    ],
)
def test_invalid_logits_raise(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "vocab.txt").write_text("a\nb\nc\n")
    with gzip.open(tmp_path / "x.json.gz", "wt") as file:
        file.write(content)
    with pytest.raises(InputError, match=message):
        read_predictions([tmp_path / "x.json.gz"], tmp_path / "vocab.txt")


@pytest.fixture(scope="module")
def subject(tiny_bert_folder: Path) -> LoadedModel:
    return LoadedModel("tiny", *regard.load(tiny_bert_folder))


@pytest.fixture(scope="module")
def other(tiny_bert_folder: Path) -> LoadedModel:
    model, tokenizer = regard.load(tiny_bert_folder)
    model.get_parameter("mlm_head.bias").data.add_(1.0)
    return LoadedModel("folder/other", model, tokenizer)


def test_probabilities_equal_those_of_fill(subject: LoadedModel) -> None:
    result = compare_models(["she had a _ film", "he had a _ film"], [subject], number=0)
    assert isinstance(result, PairResult)
    assert result.labels == ("she", "he")
    probabilities = {one.token: one.probability_a for one in result.tokens}
    for candidate in fill_blanks(subject.model, subject.tokenizer, "she had a _ film", top=5).masks[0]:
        assert probabilities[candidate.token] == pytest.approx(candidate.probability, rel=1e-5)


def test_slot_with_two_words_gives_two_sentences(subject: LoadedModel) -> None:
    one = compare_models(["[she|he] had a _ film"], [subject]).to_dict()
    two = compare_models(["she had a _ film", "he had a _ film"], [subject]).to_dict()
    assert one == two


def test_two_by_two_grid_has_four_pairs_and_two_second_differences(subject: LoadedModel) -> None:
    result = compare_models(["in [1908|2018] [he|she] was a _"], [subject], number=3, chart="differences")
    assert isinstance(result, GridResult)
    assert [pair.labels for pair in result.pairs] == [
        ("1908 / he", "1908 / she"),
        ("2018 / he", "2018 / she"),
        ("1908 / he", "2018 / he"),
        ("1908 / she", "2018 / she"),
    ]
    assert (result.pairs[0].b, result.pairs[1].a) == ("in 1908 she was a _", "in 2018 he was a _")
    first = result.differences[0]
    assert (first.a, first.b) == (("1908 / he", "1908 / she"), ("2018 / he", "2018 / she"))
    alone = compare_models(["in 1908 he was a _", "in 1908 she was a _"], [subject], number=0)
    assert isinstance(alone, PairResult)
    by_token = {one.token: one.difference for one in alone.tokens}
    for one in first.tokens:
        assert one.difference_a == pytest.approx(by_token[one.token], abs=1e-5)
        assert one.difference == pytest.approx(one.difference_a - one.difference_b)


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 3), (3, 4)])
def test_grids_of_any_size(subject: LoadedModel, rows: int, columns: int) -> None:
    years = "|".join(str(1900 + year) for year in range(rows))
    text = f"[{years}] the [{'|'.join('abcdefg'[:columns])}] was _" if rows > 1 else "the [a|b|c] was _"
    grid = compare_models([text], [subject])
    assert isinstance(grid, GridResult)
    assert (len(grid.rows), len(grid.columns)) == (rows, columns)
    pairs, squares = rows * columns * (columns - 1) // 2, rows * (rows - 1) // 2
    assert len(grid.pairs) == pairs + columns * squares
    assert len(grid.differences) == columns * (columns - 1) * squares
    data: Any = grid.view_data()
    assert (len(data["pairs"]), len(data["squares"])) == (len(grid.pairs), len(grid.differences))


def test_a_sweep_has_one_difference_per_year(subject: LoadedModel) -> None:
    sweep = compare_models(["in [1908..1912] [he|she] was a _"], [subject], number=200)
    assert isinstance(sweep, SweepResult)
    assert sweep.numbers == (1908, 1909, 1910, 1911, 1912)
    pair = compare_models(["in 1910 he was a _", "in 1910 she was a _"], [subject], number=0)
    assert isinstance(pair, PairResult)
    by_token = {one.token: one.difference for one in pair.tokens}
    for one in sweep.tokens:
        assert one.series[2] == pytest.approx(by_token[one.token], abs=1e-5)
    turned = compare_models(["[he|she] in [1908..1912] was a _"], [subject])
    assert isinstance(turned, SweepResult)
    assert (turned.numbers, turned.labels) == (sweep.numbers, ("he", "she"))
    single = compare_models(["in [1908..1912] he was a _"], [subject])
    assert isinstance(single, SweepResult)
    assert (single.labels, single.values) == ((), "log-probabilities")
    assert len(single.tokens[0].series) == 5 and max(single.tokens[0].series) < 0


def test_two_models(subject: LoadedModel, other: LoadedModel) -> None:
    result = compare_models(["he was a _"], [subject, other], number=5)
    assert isinstance(result, PairResult)
    assert result.labels == ("tiny", "other")
    view: Any = result.view_data()
    assert view["pairs"][0]["axes"]["differences"]["right"] == "__ likelihood, both models →"
    # A constant added to all logits changes no probability.
    assert all(one.difference == pytest.approx(0, abs=1e-4) for one in result.tokens)
    assert result.caption == "No likely word differs by a factor of 2 between tiny and other."
    logits = compare_models(["he was a _"], [subject, other], number=5, values="logits")
    assert isinstance(logits, PairResult)
    assert all(one.difference == pytest.approx(-1, abs=1e-5) for one in logits.tokens)
    grid = compare_models(["he was a _", "she was a _"], [subject, other])
    assert isinstance(grid, GridResult)
    assert (grid.rows, grid.columns) == (("tiny", "other"), ("he", "she"))
    assert isinstance(compare_models(["in [1..3] he was a _"], [subject, other]), SweepResult)


def test_differences_have_the_sign_of_the_ratio_of_probabilities(subject: LoadedModel) -> None:
    texts = ["he had a _ film", "she was in the _"]
    result = compare_models(texts, [subject], number=0)
    assert isinstance(result, PairResult)
    assert result.values == "log-probabilities"
    for one in result.tokens:
        assert one.difference == pytest.approx(np.log(one.probability_a / one.probability_b), abs=1e-4)
    logits = compare_models(texts, [subject], number=0, values="logits")
    assert isinstance(logits, PairResult)
    offsets = [one.value_a - two.value_a for one, two in zip(result.tokens[:9], logits.tokens[:9], strict=True)]
    assert np.ptp(offsets) < 1e-4  # the normalizer of the sentence, by which the two kinds of value differ
    assert [one.probability_a for one in logits.tokens[:9]] == pytest.approx(
        [one.probability_a for one in result.tokens[:9]], rel=1e-4
    )


def test_captions_leave_out_pieces_rare_words_small_differences_and_own_words() -> None:
    tokens = ["##ing", "Ox", "rare", "near", "tea", "7", "pie"]
    probabilities = np.array([0.2, 0.2, 0.0009, 0.2, 0.1, 0.1, 0.01])
    differences = np.array([9.0, 8.0, 7.0, 0.69, 0.7, 5.0, 6.0])
    assert notable_words(tokens, probabilities, differences, ["an ox is _"]) == ["pie", "tea"]
    bpe = ["Ġbeer", "ing", "Ġ7"]
    assert notable_words(bpe, np.full(3, 0.3), np.full(3, 2.0), ["they buy _"]) == ["beer"]


def test_every_word_masked_in_turn(subject: LoadedModel) -> None:
    result = compare_models(["The film was unlovely, _!"], [subject])
    assert isinstance(result, CompletionsResult)
    assert [word.word for word in result.words] == ["The", "film", "was", "unlovely", ",", "_", "!"]
    assert [word.spaced for word in result.words] == [False, True, True, True, False, True, False]
    filled = fill_blanks(subject.model, subject.tokenizer, "The film was [MASK], [MASK]!", top=90)
    assert [c.token for c in result.words[3].completions[:5]] == [c.token for c in filled.masks[0][:5]]
    assert result.words[3].completions[0].probability == pytest.approx(filled.masks[0][0].probability, rel=1e-4)
    assert {len(word.completions) for word in result.words} == {90}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["he was _ and _", "he was _"], "expected one blank"),
        (["no blank", "none here _"], "blank"),
        (["[a|b] _", "c _"], "single sentence"),
        (["[a|b] [c|d] [e|f] _"], "at most two"),
        (["[1..4] [a|b|c] _"], "one of 3"),
        (["[1..4] [5..9] _"], "another range"),
        (["[a|b|c|d|e|f|g|h|i] [1|2|3|4|5|6|7|8] _"], "72 sentences"),
        (["   "], "expected a sentence"),
        (["he _ " + "word " * 200, "she _"], "shorten"),
    ],
)
def test_invalid_texts_raise(subject: LoadedModel, texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_models(texts, [subject])


def test_the_view_opens_with_the_requested_chart(subject: LoadedModel) -> None:
    texts = ["it's _", "it is _"]
    data: Any = compare_models(texts, [subject], number=200, chart="differences").view_data()
    assert (data["number"], data["chart"], data["kind"]) == (200, "differences", "pair")
    assert [one["text"] for one in data["sentences"]] == texts


def test_too_many_words_raise(subject: LoadedModel) -> None:
    with pytest.raises(InputError, match=r"500 words .*at most 100.* Shorten it by 400"):
        compare_models(["word " * 500], [subject])
    result = compare_models(["film " * 100], [subject])
    assert isinstance(result, CompletionsResult)
    assert len(result.words) == 100
