"""Parts of the last chapter: what a masked language model associates with places, people and years."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import ExerciseAnswer
from regard.render.story import Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from regard.interpret.masked_lm.comparison import PairResult, TokenDifference
    from regard.interpret.masked_lm.predictions import ValueKind

MODEL = "regard-bert"
TEXAS = ("In Texas, they like to buy _.", "In New York, they like to buy _.")
JANE = ("Jane worked as a _.", "Jim worked as a _.")
HE_SHE = ("He worked as a _.", "She worked as a _.")
GRID = "In [1908|2018], [he|she] was employed as a _."
YEARS = "In [1860..2018], [he|she] was employed as a _."
DECK_CAPTION = "BERT associates these potential purchases more with Texas than New York..."
NUM_TOKENS = 50  # tokens of the sign test
SIGNS = (1, 6, 21)  # limits of the choices of the exercise


def _pair(
    models: Models, texts: tuple[str, str], *, top: int = 30, values: ValueKind = "log-probabilities"
) -> PairResult:
    from regard.interpret.masked_lm.comparison import PairResult, compare_models

    with models.use(MODEL) as loaded:
        result = compare_models(texts, [loaded], number=top, chart="differences", values=values)
    assert isinstance(result, PairResult)
    return result


def captions(models: Models) -> list[StoryBlock]:
    rows = [
        ("Texas and New York, deck", DECK_CAPTION),
        ("Texas and New York, ours", _pair(models, TEXAS).caption),
        ("Jane and Jim, deck", "(a chart without a caption)"),
        ("Jane and Jim, ours", _pair(models, JANE).caption),
    ]
    return [StoryTable(headers=("chart", "caption"), rows=rows, text_columns=[1])]


def texas_answer(models: Models) -> ExerciseAnswer:
    by_token = {one.token: one for one in _pair(models, TEXAS, top=0).tokens}
    cattle, books = by_token["cattle"], by_token["books"]
    choice = 0 if cattle.difference > 0 > books.difference else 1 if books.difference > 0 > cattle.difference else 2
    return ExerciseAnswer(choice, f"{_explain(cattle, 'Texas', 'New York')} {_explain(books, 'Texas', 'New York')}")


def _explain(one: TokenDifference, a: str, b: str) -> str:
    ratio = one.probability_a / one.probability_b
    more, other, factor = (a, b, ratio) if ratio >= 1 else (b, a, 1 / ratio)
    return (
        f"{one.token!r}: {one.probability_a:.3%} with {a}, {one.probability_b:.3%} with {b}, {factor:.1f} times as "
        "likely "
        f"with {more} as with {other}."
    )


def signs(models: Models) -> tuple[list[tuple[TokenDifference, float]], float]:
    """Tokens whose difference of logits has another sign than that of log-probabilities; and the normalizers' gap."""
    right = _pair(models, HE_SHE, top=NUM_TOKENS)
    raw = {one.token: one for one in _pair(models, HE_SHE, top=NUM_TOKENS, values="logits").tokens}
    wrong = [(one, raw[one.token].difference) for one in right.tokens if one.difference * raw[one.token].difference < 0]
    first = right.tokens[0]
    return wrong, raw[first.token].difference - first.difference


def normalizer(models: Models) -> list[StoryBlock]:
    wrong, gap = signs(models)
    rows = [
        (one.token, f"{one.probability_a:.3%}", f"{one.probability_b:.3%}", f"{raw:+.2f}", f"{one.difference:+.2f}")
        for one, raw in wrong
    ]
    headers = ("token", "He", "She", "difference of logits", "of log-probabilities")
    caption = f"Tokens among the {NUM_TOKENS} likeliest whose difference changes its sign"
    return [
        Paragraph(
            text=f"The log-sum-exp over the vocabulary differs by {gap:+.2f} between the two sentences. Differences "
            "of logits are "
            f"all shifted by that amount: for {len(rows)} of {NUM_TOKENS} tokens they point at the wrong pronoun."
        ),
        StoryTable(headers=headers, rows=rows or [("none", "", "", "", "")], caption=caption),
    ]


def signs_answer(models: Models) -> ExerciseAnswer:
    wrong, gap = signs(models)
    choice = sum(len(wrong) >= limit for limit in SIGNS)
    names = ", ".join(one.token for one, _ in wrong[:6]) or "none"
    return ExerciseAnswer(choice, f"{len(wrong)} of {NUM_TOKENS}: {names}. The normalizers differ by {gap:+.2f}.")


def years(models: Models) -> list[StoryBlock]:
    """How far he and she are apart in both years, for jobs that the grid shows."""
    rows = []
    for year in (1908, 2018):
        pair = _pair(models, (f"In {year}, he was employed as a _.", f"In {year}, she was employed as a _."))
        most = max(pair.tokens, key=lambda one: abs(one.difference))
        mean = sum(abs(one.difference) for one in pair.tokens) / len(pair.tokens)
        rows.append((str(year), f"{mean:.2f}", f"{most.token} ({most.difference:+.2f})", pair.caption))
    headers = ("year", "mean distance of he and she", "largest", "caption")
    return [
        StoryTable(headers=headers, rows=rows, text_columns=[3], caption="The 30 likeliest tokens; log-probabilities")
    ]


def nurse_answer(models: Models) -> ExerciseAnswer:
    found = {}
    for year in (1908, 2018):
        texts = (f"In {year}, he was employed as a _.", f"In {year}, she was employed as a _.")
        found[year] = next(one for one in _pair(models, texts, top=0).tokens if one.token == "nurse")
    gap = {year: -one.difference for year, one in found.items()}
    choice = 2 if abs(gap[1908] - gap[2018]) < 0.1 else 0 if gap[1908] > gap[2018] else 1
    listed = "; ".join(
        f"{year}: he {one.probability_a:.3%}, she {one.probability_b:.3%}, log ratio {gap[year]:.2f}"
        for year, one in found.items()
    )
    return ExerciseAnswer(choice, f"{listed}. The difference of the two differences is {gap[1908] - gap[2018]:+.2f}.")
