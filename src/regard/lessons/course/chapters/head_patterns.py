"""Parts of the last chapter: the patterns that heads learn, and how many heads a prediction needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.checkpoints.models import Models
from regard.events import drain
from regard.lessons.course.chapter import DeckRow, ExerciseAnswer, beside_deck
from regard.render.story import Paragraph, StoryBlock

if TYPE_CHECKING:
    from regard.interpret.ablation import HeadSweep
    from regard.interpret.heads import HeadCensus

MODEL = "regard-bert"
TEXTS = (
    "The strawberries were red, and the cream was cold.",
    "She put the strawberries into the cream.",
    "The king spoke to the queen about the war.",
    "The queen told the king that the war was lost.",
    "A dog ran along the river and a cat slept by the river.",
    "The cat saw the dog and ran away.",
    "He wrote a long letter to his brother in the city.",
    "His brother did not answer the letter.",
)
# The deck's list, and the names of the census.
PATTERNS = (
    ("attention to next word", "next word"),
    ("attention to previous word", "previous word"),
    ("attention to identical or related words", "same or related word"),
    ("the same in another sentence", "same or related word in the other sentence"),
    ("other words predictive of the word (straw, berries)", "predictive words"),
    ("attention to delimiters (word to SEP)", "delimiter"),
)
ANIMAL = "The animal didn't cross the street because it was too tired."
BLANK = "The capital of France is _."


def _census(models: Models) -> HeadCensus:
    from regard.interpret.heads import head_census, read_text_pairs

    pairs, left_out = read_text_pairs(TEXTS)
    with models.use(MODEL) as loaded:
        return loaded.cached(
            ("course", "heads"),
            lambda: drain(head_census(loaded.model, loaded.tokenizer, pairs, left_out=left_out, name=MODEL, seed=0)),
        )


def patterns(models: Models) -> list[StoryBlock]:
    census = _census(models)
    rows = []
    for printed, name in PATTERNS:
        named = [one for one in census.heads if one.pattern == name]
        listed = ", ".join(f"layer {one.layer} head {one.head}" for one in named[:3])
        rows.append(DeckRow(printed, "learned", f"{census.counts.get(name, 0)} heads", listed))
    rest = sum(one.pattern is None for one in census.heads)
    return [
        beside_deck(rows, caption=f"The {len(census.heads)} heads of {MODEL} over {len(TEXTS)} sentences"),
        Paragraph(
            text=f"{rest} heads follow none of these patterns on these few sentences; a head is named only if it "
            "exceeds chance by 10 points and significantly."
        ),
    ]


def pattern_answer(models: Models) -> ExerciseAnswer:
    counts = _census(models).counts
    names = [name for _, name in PATTERNS]
    best = max(names, key=lambda name: counts.get(name, 0))
    listed = ", ".join(f"{name} {counts.get(name, 0)}" for name in names)
    return ExerciseAnswer(names.index(best), f"Heads by pattern: {listed}.")


def _sweep(models: Models) -> HeadSweep:
    from regard.interpret.ablation import sweep_heads
    from regard.interpret.attribution.probe import probe_model

    with models.use(MODEL) as loaded:
        probe = probe_model(loaded, BLANK)
        return loaded.cached(("course", "sweep"), lambda: sweep_heads(probe))


def removal(models: Models) -> list[StoryBlock]:
    sweep = _sweep(models)
    changed = [one for one in sweep.ranked if one.changed]
    return [
        Paragraph(
            text=f"Each of the {len(sweep.ranked)} heads of {MODEL} is removed alone, for {BLANK!r}. The likeliest "
            "word changes for "
            f"{len(changed)} of them. A picture of all heads shows {len(sweep.ranked)} maps and does not say which."
        )
    ]


def removal_answer(models: Models) -> ExerciseAnswer:
    sweep = _sweep(models)
    share = sum(bool(one.changed) for one in sweep.ranked) / len(sweep.ranked)
    choice = 0 if share < 0.1 else 1 if share < 0.5 else 2
    return ExerciseAnswer(
        choice,
        f"Removing one head changes the likeliest word for {share:.0%} of the {len(sweep.ranked)} heads: the others "
        "can be "
        "spared, one at a time.",
    )
