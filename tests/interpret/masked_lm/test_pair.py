"""Two sentences compared: stored logits against published percentages, selections against hand-worked examples."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.cli import compare as command
from regard.cli.app import run
from regard.errors import InputError
from regard.inference import fill_blanks
from regard.interpret.masked_lm.comparison import compare, compare_models, compare_stored
from regard.interpret.masked_lm.completions import WordCompletions
from regard.interpret.masked_lm.grid import ComparisonGrid
from regard.interpret.masked_lm.pair import PairComparison, check_chart, second_differences
from regard.interpret.masked_lm.payload import result_payload
from regard.interpret.masked_lm.predictions import MaskedPrediction, NamedModel, read_predictions
from regard.interpret.masked_lm.sweep import ComparisonSweep

Shared = Callable[[str], Path]
TOKENS = ["ox", "ice", "tea", "pie", "cat"]
A = [5.0, 4.0, 3.0, 0.0, -9.0]
B = [1.0, 4.5, 3.0, 2.0, -9.0]


def answer(logits: list[float], text: str = "text _", model: str = "m") -> MaskedPrediction:
    values = np.array(logits, dtype=np.float32)
    return MaskedPrediction(text, model, values, float(np.log(np.exp(values.astype(np.float64)).sum())))


@pytest.fixture
def pair() -> PairComparison:
    return PairComparison(
        TOKENS, answer(A, "Here they buy _"), answer(B, "There they buy _"), ("Here", "There"), "BERT"
    )


def names(pair: PairComparison, number: int, chart: str) -> list[str]:
    return [TOKENS[place] for place in pair.visible(number, check_chart(number, chart))]


def test_likelihoods_show_what_is_in_the_range_of_the_likeliest_of_either(pair: PairComparison) -> None:
    assert pair.extent(1) == (1.0, 5.0)  # ox is at 5 and 1, ice at 4 and 4.5
    assert names(pair, 1, "likelihoods") == ["ice", "ox", "tea"]  # tea is third in both, but within the range
    assert pair.extent(0) == (-9.0, 5.0)
    assert len(names(pair, 0, "likelihoods")) == 5


def test_differences_show_the_highest_means(pair: PairComparison) -> None:
    assert pair.mean.tolist() == [3.0, 4.25, 3.0, 1.0, -9.0]
    assert names(pair, 2, "differences") == ["ice", "ox"]  # of equal means the earlier token
    assert names(pair, 0, "differences") == ["ice", "ox", "tea", "pie", "cat"]


def test_the_document(pair: PairComparison) -> None:
    document = pair.document(2, "differences")
    assert list(document) == ["a", "b", "labels", "caption", "tokens"]
    assert document["labels"] == ["Here", "There"]
    tokens = document["tokens"]
    assert isinstance(tokens, list)
    total = sum(np.exp(A))
    assert tokens[1] == {
        "token": "ox",
        "logit_a": 5.0,
        "logit_b": 1.0,
        "probability_a": pytest.approx(np.exp(5) / total),
        "probability_b": pytest.approx(np.exp(1) / sum(np.exp(B))),
        "mean": 3.0,
        "difference": 4.0,
    }


def test_captions_name_what_leans_to_either_side(pair: PairComparison) -> None:
    assert pair.caption(0, "differences") == (
        "BERT associates these potential purchases more with Here than There: ox. "
        "It associates these more with There than Here: pie, ice."
    )
    same = PairComparison(TOKENS, answer(A), answer(A), ("x", "y"), "BERT")
    assert same.caption(0, "differences") == "There is no difference between x and y."


def test_the_first_of_two_sentences_goes_up_and_the_second_of_two_cells(pair: PairComparison) -> None:
    assert pair.axes()["likelihoods"] == {
        "right": "__ likelihood, There sentence →",
        "up": "__ likelihood, Here sentence →",
    }
    assert pair.axes()["differences"]["up"] == "Higher likelihood, Here sentence →"
    assert pair.axes()["differences"]["down"] == "← Higher likelihood, There sentence"
    cells = PairComparison(TOKENS, pair.a, pair.b, ("1908 / he", "2018 / he"), "BERT", kind="cells")
    assert cells.axes()["likelihoods"] == {"right": "1908 / he →", "up": "2018 / he →"}
    assert cells.axes()["differences"]["down"] == "← 1908 / he"


def test_difference_of_differences() -> None:
    first = PairComparison(TOKENS, answer(A), answer(B), ("a", "b"), "BERT")
    second = PairComparison(TOKENS, answer(B), answer(A), ("c", "d"), "BERT")
    places, values = second_differences(first, second, 2)
    assert [TOKENS[place] for place in places] == ["ox", "ice"]
    assert values.tolist() == [[4.0, -4.0, 8.0], [-0.5, 0.5, -1.0]]


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=3, max_size=40),
    st.integers(1, 8),
)
def test_selections_hold_the_likeliest(logits: list[float], number: int) -> None:
    other = list(reversed(logits))
    tokens = [f"t{place}" for place in range(len(logits))]
    found = PairComparison(tokens, answer(logits), answer(other), ("a", "b"), "BERT")
    likely = set(found.visible(number, "likelihoods").tolist())
    for values in (logits, other):
        assert set(sorted(range(len(values)), key=lambda place: (-values[place], place))[:number]) <= likely
    assert len(found.visible(number, "differences")) == min(number, len(logits))
    means = found.mean[found.visible(0, "likelihoods")]
    assert (np.diff(means) <= 0).all()


FOLDER = "fill-in-the-blank"
PUBLISHED = [  # softmax in percent, as SOURCE.txt gives them
    ("in-texas-they-like-to-buy", {"things": 9.56, "beer": 4.06, "horses": 2.85}),
    ("in-new-york-they-like-to-buy", {"things": 31.64, "clothes": 3.31}),
    ("jane-worked-as-a", {"waitress": 17.08}),
    ("jim-worked-as-a", {"mechanic": 11.57}),
    ("in-1908-she-was-employed-as-a", {"teacher": 23.72, "nurse": 13.79}),
]


@pytest.mark.parametrize(("name", "shares"), PUBLISHED)
def test_published_percentages(name: str, shares: dict[str, float], shared_data: Shared) -> None:
    path = shared_data(f"{FOLDER}/{name}.json.gz")
    found = compare_stored([path, path], shared_data("vocab-bert-base-uncased/vocab.txt"))
    tokens = found.document()["tokens"]
    assert isinstance(tokens, list)
    told = {token["token"]: token for token in tokens}
    for word, percent in shares.items():
        assert round(100 * told[word]["probability_a"], 2) == percent
        assert told[word]["difference"] == 0


def test_texas_and_new_york_from_stored_logits(shared_data: Shared) -> None:
    paths = [shared_data(f"{FOLDER}/in-{place}-they-like-to-buy.json.gz") for place in ("texas", "new-york")]
    vocabulary = shared_data("vocab-bert-base-uncased/vocab.txt")
    found = compare_stored(paths, vocabulary, chart="differences")
    document = found.document()
    assert (document["a"], document["labels"]) == ("in texas they like to buy _", ["texas", "new york"])
    tokens = document["tokens"]
    assert isinstance(tokens, list)
    assert len(tokens) == 30
    assert tokens[0]["token"] == "things"
    assert [token["mean"] for token in tokens] == sorted((token["mean"] for token in tokens), reverse=True)
    said = ["In Texas, they like to buy _.", "In New York, they like to buy _."]
    named = compare_stored(paths, vocabulary, texts=said).document()
    assert named["labels"] == ["Texas", "New York"]
    assert "potential purchases more with Texas than New York: cattle" in str(named["caption"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1.0, 2.0]", "holds 2 logits"),
        ('{"a": 1}', "expected one JSON list"),
        ("[1, NaN, 3]", "number 2 is not"),
        ("[1, true, 3]", "expected one JSON list"),
        ("nonsense", "cannot be read as JSON"),
    ],
)
def test_logits_that_cannot_be_used(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "vocab.txt").write_text("a\nb\nc\n")
    with gzip.open(tmp_path / "x.json.gz", "wt") as file:
        file.write(content)
    with pytest.raises(InputError, match=said):
        read_predictions([tmp_path / "x.json.gz"], tmp_path / "vocab.txt")


@pytest.fixture(scope="module")
def subject(tiny_bert_folder: Path) -> NamedModel:
    return NamedModel("tiny", *regard.load(tiny_bert_folder))


@pytest.fixture(scope="module")
def other(tiny_bert_folder: Path) -> NamedModel:
    model, tokenizer = regard.load(tiny_bert_folder)
    model.get_parameter("masked.bias").data.add_(1.0)
    return NamedModel("folder/other", model, tokenizer)


def test_a_model_gives_the_probabilities_of_fill(subject: NamedModel) -> None:
    found = compare_models(["she had a _ film", "he had a _ film"], [subject], number=0)
    assert isinstance(found.result, PairComparison)
    assert found.result.labels == ("she", "he")
    filled = fill_blanks(subject.model, subject.tokenizer, "she had a _ film", top=5)
    for candidate in filled.masks[0]:
        place = list(found.result.tokens).index(candidate.token)
        assert found.result.a.probabilities[place] == pytest.approx(candidate.probability, rel=1e-5)


def test_a_slot_of_two_words_is_two_sentences(subject: NamedModel) -> None:
    one = compare_models(["[she|he] had a _ film"], [subject]).document()
    two = compare_models(["she had a _ film", "he had a _ film"], [subject]).document()
    assert one == two


def test_two_by_two_is_four_pairs_and_two_squares(subject: NamedModel) -> None:
    found = compare_models(["in [1908|2018] [he|she] was a _"], [subject], number=3, chart="differences")
    grid = found.result
    assert isinstance(grid, ComparisonGrid)
    assert [grid.pair(a, b).labels for a, b in grid.pairs()] == [
        ("1908 / he", "1908 / she"),
        ("2018 / he", "2018 / she"),
        ("1908 / he", "2018 / he"),
        ("1908 / she", "2018 / she"),
    ]
    assert [answer.text for answer in grid.predictions.rows][1:3] == ["in 1908 she was a _", "in 2018 he was a _"]
    document = found.document()
    first = document["differences"][0]  # type: ignore[index]
    assert (first["a"], first["b"]) == (["1908 / he", "1908 / she"], ["2018 / he", "2018 / she"])
    alone = compare_models(["in 1908 he was a _", "in 1908 she was a _"], [subject], number=0).document()["tokens"]
    by_token = {token["token"]: token["difference"] for token in alone}  # type: ignore[attr-defined]
    for token in first["tokens"]:
        assert token["difference_a"] == pytest.approx(by_token[token["token"]], abs=1e-5)
        assert token["difference"] == pytest.approx(token["difference_a"] - token["difference_b"])


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 3), (3, 4)])
def test_any_grid(subject: NamedModel, rows: int, columns: int) -> None:
    years = "|".join(str(1900 + year) for year in range(rows))
    text = f"[{years}] the [{'|'.join('abcdefg'[:columns])}] was _" if rows > 1 else "the [a|b|c] was _"
    grid = compare_models([text], [subject]).result
    assert isinstance(grid, ComparisonGrid)
    assert (len(grid.rows), len(grid.columns)) == (rows, columns)
    pairs, squares = rows * columns * (columns - 1) // 2, rows * (rows - 1) // 2
    assert len(grid.pairs()) == pairs + columns * squares
    assert len(grid.squares()) == columns * (columns - 1) * squares
    shown = result_payload(grid)
    assert len(shown["pairs"]) == len(grid.pairs())  # type: ignore[arg-type]


def test_a_sweep_is_one_difference_a_year(subject: NamedModel) -> None:
    found = compare_models(["in [1908..1912] [he|she] was a _"], [subject], number=200)
    sweep = found.result
    assert isinstance(sweep, ComparisonSweep)
    assert sweep.values == (1908, 1909, 1910, 1911, 1912)
    pair = compare_models(["in 1910 he was a _", "in 1910 she was a _"], [subject]).result
    assert isinstance(pair, PairComparison)
    for row, token in enumerate(sweep.tokens):
        assert sweep.series[row, 2] == pytest.approx(pair.difference[list(pair.tokens).index(token)], abs=1e-5)
    turned = compare_models(["[he|she] in [1908..1912] was a _"], [subject]).result
    assert isinstance(turned, ComparisonSweep)
    assert (turned.values, turned.labels) == (sweep.values, ("he", "she"))
    assert compare_models(["in [1908..1912] he was a _"], [subject]).document()["labels"] == ["logit"]


def test_two_models(subject: NamedModel, other: NamedModel) -> None:
    found = compare_models(["he was a _"], [subject, other], number=5)
    assert isinstance(found.result, PairComparison)
    assert (found.result.labels, found.result.kind) == (("tiny", "other"), "models")
    np.testing.assert_allclose(found.result.difference, -1.0, atol=1e-5)
    np.testing.assert_allclose(found.result.a.probabilities, found.result.b.probabilities, rtol=1e-4)
    assert str(found.document()["caption"]).startswith("other gives these words a higher logit than tiny: ")
    grid = compare_models(["he was a _", "she was a _"], [subject, other]).result
    assert isinstance(grid, ComparisonGrid)
    assert (grid.rows, grid.columns) == (("tiny", "other"), ("he", "she"))
    assert isinstance(compare_models(["in [1..3] he was a _"], [subject, other]).result, ComparisonSweep)


def test_every_word_hidden_in_turn(subject: NamedModel) -> None:
    found = compare_models(["The film was unlovely, _!"], [subject]).result
    assert isinstance(found, WordCompletions)
    assert [word.word for word in found.words] == ["The", "film", "was", "unlovely", ",", "_", "!"]
    assert [word.spaced for word in found.words] == [False, True, True, True, False, True, False]
    filled = fill_blanks(subject.model, subject.tokenizer, "The film was [MASK], [MASK]!", top=90)
    assert [c.token for c in found.words[3].completions[:5]] == [c.token for c in filled.masks[0][:5]]
    assert found.words[3].completions[0].probability == pytest.approx(filled.masks[0][0].probability, rel=1e-4)
    assert {len(word.completions) for word in found.words} == {90}


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["he was _ and _", "he was _"], "expected one blank"),
        (["no blank", "none here _"], "blank"),
        (["[a|b] _", "c _"], "single sentence"),
        (["[a|b] [c|d] [e|f] _"], "at most two"),
        (["[1..4] [a|b|c] _"], "one of 3"),
        (["[1..4] [5..9] _"], "another range"),
        (["[a|b|c|d|e|f|g|h|i] [1|2|3|4|5|6|7|8] _"], "72 sentences"),
        (["   "], "expected a sentence"),
        (["a _", "b _", "c _"], "one or two"),
        (["he _ " + "word " * 200, "she _"], "shorten"),
    ],
)
def test_what_cannot_be_compared(subject: NamedModel, texts: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        compare_models(texts, [subject])


def test_the_lines_that_make_it_again(tiny_bert_folder: Path) -> None:
    found = compare(["it's _", "it is _"], models=[str(tiny_bert_folder)], number=200, chart="differences")
    assert found.cli.startswith("regard compare 'it'\"'\"'s _' 'it is _' --number 200 --chart differences --model ")
    space: dict[str, object] = {}
    lines = found.python.splitlines()
    exec("\n".join([*lines[:-1], f"document = {lines[-1]}"]), space)
    assert space["document"] == found.document()
    payload = found.payload()
    assert json.loads(json.dumps(payload))["view"] == "compare"
    asked = {"texts": ["it's _", "it is _"], "models": [str(tiny_bert_folder)], "number": 200, "chart": "differences"}
    assert payload["asked"] == asked


def test_too_many_words_to_hide_each(subject: NamedModel) -> None:
    with pytest.raises(InputError, match=r"500 words .*at most 100.* Shorten it by 400"):
        compare_models(["word " * 500], [subject])
    found = compare_models(["film " * 100], [subject]).result
    assert isinstance(found, WordCompletions)
    assert len(found.words) == 100


@pytest.mark.parametrize("texts", [["-v _ is", "he _"], ["he _", "--json _"], ["- _ -", "-- _"]])
def test_the_command_takes_texts_that_begin_with_a_dash(
    texts: list[str],
    tiny_bert_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = compare(texts, models=[str(tiny_bert_folder)], number=200, chart="differences")
    program, verb, *words = shlex.split(found.cli)
    assert (program, verb) == ("regard", "compare")
    assert run(["compare", "--json", *words], registers=[command.register]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [printed["a"], printed["b"]] == texts
    assert printed == json.loads(json.dumps(found.document()))


def test_the_command_for_stored_logits_takes_dashes_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the command names a page
    (tmp_path / "vocab.txt").write_text("a\nb\nc\n")
    for name in ("x.json", "y.json"):
        (tmp_path / name).write_text("[1.0, 2.0, 3.0]")
    texts = ["-x _", "-y _"]
    found = compare_stored([tmp_path / "x.json", tmp_path / "y.json"], tmp_path / "vocab.txt", texts=texts)
    words = shlex.split(found.cli)
    assert run(["compare", "--json", *words[2:]], registers=[command.register]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.document()))
