"""Parts of the chapter on attention: alignments of translations, and the reversal with attention."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from regard.checkpoints.models import Models
from regard.events import Progress
from regard.lessons.course.chapter import (
    CodeBlock,
    Computed,
    DeckRow,
    Exercise,
    ExerciseAnswer,
    LiveView,
    Part,
    Prose,
    beside_deck,
)
from regard.render.story import FigureRow, HeatMap, Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from regard.inference.translation.translator import Alignment, AlignmentHeads
    from regard.lessons.reverse_comparison import ReverseRun

LSTM, TRANSFORMER = "regard-lstm-fr-en", "regard-fr-en"
AREA = (
    "L'accord sur la zone économique européenne a été signé en août 1992.",
    "The agreement on the European Economic Area was signed in August 1992.",
)
REORDERED = {"European": "européenne", "Economic": "économique", "Area": "zone"}
PIE = ("Il m'a entarté.", "He hit me with a pie.")
PIE_DECK = {"He": ("il",), "hit": ("a", "entarté"), "me": ("m'",), "with": ("entarté",), "a": ("entarté",)}
PIE_DECK["pie."] = ("entarté",)
CAT = ("Le chat noir dort.", "The black cat is sleeping.")
MARKT = ("Ich muss auf den Markt gehen.", "I must go to the market.")


def _alignment(models: Models, pair: tuple[str, str], name: str = LSTM) -> Alignment:
    from regard.inference.translation.forced_decoding import force_targets
    from regard.inference.translation.translator import use_translator

    with use_translator(models, name) as translator:
        [forced] = force_targets(translator, pair[0], [pair[1]])
    assert forced.alignment is not None
    return forced.alignment


def _map(alignment: Alignment, title: str, *, hard: bool = False) -> HeatMap:
    weights = alignment.weights
    if hard:
        columns = range(len(alignment.source))
        weights = [[float(column == best) for column in columns] for best in alignment.hard()]
    return HeatMap(
        weights=weights,
        rows=alignment.target,
        columns=alignment.source,
        title=title,
        row_title="translation",
        column_title="source",
    )


def _market(models: Models) -> list[StoryBlock]:
    alignment = _alignment(models, MARKT, "regard-de-en")
    aligned = dict(zip(alignment.target, (alignment.source[index] for index in alignment.hard()), strict=True))
    text = "; ".join(f"{word} ← {source}" for word, source in aligned.items())
    return [_map(alignment, "regard-de-en, soft"), Paragraph(text=f"The largest weight of each word: {text}.")]


def _cat(models: Models) -> list[StoryBlock]:
    found = {name: _alignment(models, CAT, name) for name in (LSTM, TRANSFORMER)}
    return [FigureRow(blocks=[_map(alignment, name) for name, alignment in found.items()])]


def _area(models: Models) -> list[StoryBlock]:
    best, heads, count = _best_head(models)
    name = f"{TRANSFORMER}, layer {heads.layer}, head {heads.heads[0]}"
    found = {LSTM: _alignment(models, AREA), TRANSFORMER: _alignment(models, AREA, TRANSFORMER), name: best}
    rows = []
    for word, expected in REORDERED.items():
        cells = []
        for alignment in found.values():
            row = alignment.weights[alignment.target.index(word)]
            cells.append(f"{_best(alignment, word)}, {max(row):.2f}")
        rows.append((word, expected, *cells))
    rights = "; ".join(f"{name}: {_count_reordered(alignment)}" for name, alignment in found.items())
    return [
        FigureRow(blocks=[_map(alignment, title) for title, alignment in found.items()]),
        StoryTable(
            headers=("word", "in the slide", *found),
            rows=rows,
            text_columns=[1, 2, 3, 4],
            caption="The source word with the largest weight",
        ),
        Paragraph(
            text=f"Words of the three that look at their own translation: {rights}. The last one is the best of the "
            f"Transformer's {count} heads for this; its alignments use the mean of one layer. Bahdanau's model was "
            "trained on such sentences; these small translators have read short everyday ones."
        ),
    ]


def _best_head(models: Models) -> tuple[Alignment, AlignmentHeads, int]:
    """The head of the Transformer that aligns most of the reordered words, and with the largest weights."""
    from dataclasses import replace

    from regard.inference.translation.translator import AlignmentHeads, use_translator

    with use_translator(models, TRANSFORMER) as translator:
        config = translator.model.config
        ids = translator.encode_translation(AREA[1])
        every = [
            AlignmentHeads(layer, (head,))
            for layer in range(1, config.num_hidden_layers + 1)
            for head in range(config.num_attention_heads)
        ]
        found = [(replace(translator, alignment_heads=heads).align(AREA[0], ids), heads) for heads in every]

    def quality(entry: tuple[Alignment, AlignmentHeads]) -> tuple[int, float]:
        alignment = entry[0]
        weights = (
            alignment.weights[alignment.target.index(word)][alignment.source.index(source)]
            for word, source in REORDERED.items()
        )
        return _count_reordered(alignment), sum(weights)

    return *max(found, key=quality), len(every)


def _count_reordered(alignment: Alignment) -> int:
    return sum(_best(alignment, word) == source for word, source in REORDERED.items())


def _best(alignment: Alignment, word: str) -> str:
    return alignment.source[alignment.hard()[alignment.target.index(word)]]


def _pie(models: Models) -> list[StoryBlock]:
    found = {name: _alignment(models, PIE, name) for name in (LSTM, TRANSFORMER)}
    first = found[LSTM]
    rows = []
    for word, expected in PIE_DECK.items():
        best = [_best(alignment, word).lower() for alignment in found.values()]
        rows.append((word, ", ".join(expected), *best))
    counts = [
        sum(any(piece in _best(alignment, word).lower() for piece in expected) for word, expected in PIE_DECK.items())
        for alignment in found.values()
    ]
    many = {
        source: [word for word in first.target if _best(first, word) == source]
        for source in dict.fromkeys(first.source)
    }
    listed = "; ".join(f"{source} → {', '.join(words)}" for source, words in many.items() if len(words) > 1)
    return [
        FigureRow(blocks=[_map(first, f"{LSTM}, soft"), _map(first, f"{LSTM}, hard: the largest weight", hard=True)]),
        StoryTable(
            headers=("English word", "in the slide", *found),
            rows=rows,
            text_columns=[1, 2, 3],
            caption="The French word with the largest weight; we write m'a as one word",
        ),
        Paragraph(
            text=f"{counts[0]} of {len(PIE_DECK)} words of the LSTM and {counts[1]} of the Transformer agree with the "
            f"slide. One to many, by the LSTM: {listed or 'none'}."
        ),
    ]


def _answer_black(models: Models) -> ExerciseAnswer:
    alignment = _alignment(models, CAT, TRANSFORMER)
    row = alignment.weights[alignment.target.index("black")]
    best = row.index(max(row))
    return ExerciseAnswer(
        best,
        f"The Transformer puts {row[best]:.2f} on “{alignment.source[best]}”, the third word, and then goes back to "
        "the second for “cat”. French writes the noun first and most adjectives after it.",
    )


def _answer_pie(models: Models) -> ExerciseAnswer:
    alignment = _alignment(models, PIE)
    row = alignment.weights[alignment.target.index("pie.")]
    weights = {source.strip(".").lower(): weight for source, weight in zip(alignment.source, row, strict=True)}
    best = max(weights, key=weights.__getitem__)
    return ExerciseAnswer(
        ("il", "m'a", "entarté").index(best),
        "The LSTM's weights are "
        + ", ".join(f"{weight:.2f} on {word!r}" for word, weight in weights.items())
        + ". One French verb says what English needs four words for.",
    )


def _train(score: str, steps: int, features: int, *, done: int, total: int) -> Generator[Progress, None, ReverseRun]:
    from regard.lessons.reverse_comparison import ReverseTask, reverse_config, train_task

    name = "without attention" if score == "none" else f"with the {score} score"
    yield Progress(stage=f"training {name} on sequences of {steps}", done=done, total=total, unit="models")
    config = reverse_config(steps=steps, features=features, as_in_deck=True)
    return train_task(ReverseTask(score, "luong", config))  # type: ignore[arg-type]


def _four_digits(models: Models) -> Generator[Progress, None, list[StoryBlock]]:
    from regard.lessons.reverse_comparison import join_digits

    run = yield from _train("dot", 4, 10, done=0, total=1)
    rows = [
        DeckRow("test, percent per digit", "not given", f"{run.test.token_accuracy:.3f}", "without attention: 98.125"),
        DeckRow("steps that look at the right digit, percent", "not given", f"{run.alignment_accuracy:.1f}"),
        DeckRow("epochs", "not given", str(run.epochs)),
    ]
    maps = [
        run.heat_map(f"{join_digits(run.inputs[0])}, a test sequence"),
        run.mean_heat_map("Mean over the test set, by position"),
    ]
    return [FigureRow(blocks=maps), beside_deck(rows)]


def _exercise(models: Models) -> Generator[Progress, None, list[StoryBlock]]:
    plain = yield from _train("none", 20, 16, done=0, total=2)
    attending = yield from _train("dot", 20, 16, done=1, total=2)
    return exercise_blocks(plain, attending)


def exercise_blocks(plain: ReverseRun, attending: ReverseRun) -> list[StoryBlock]:
    """The deck's exercise: one model without attention and one with Luong's, both with the deck's budget."""
    config = plain.task.config
    rows = [
        (name, *run.score_cells(), str(run.epochs))
        for name, run in (("without attention", plain), ("with attention (dot, Luong's recipe)", attending))
    ]
    headers = ("token accuracy, percent", "train", "test", "whole sequences", "aligned", "epochs")
    positions = HeatMap(
        weights=[[percent / 100 for percent in run.accuracy_by_position] for run in (plain, attending)],
        rows=["without", "with"],
        columns=[str(position) for position in range(1, config.steps + 1)],
        title="Accuracy at each position of the output",
        row_title="attention",
        column_title="position",
    )
    return [
        StoryTable(headers=headers, rows=rows, caption=f"{config.steps} digits from 0 to {config.features - 1}"),
        positions,
        attending.mean_heat_map("Attention, mean over the test set: the anti-diagonal is the reversal"),
        Paragraph(
            text=f"Only two variables differ from the slide's example: {config.steps} steps and {config.features} "
            f"features. {config.train_size:,} training sequences, {config.units} units, batches of "
            f"{config.batch_size}, {config.epochs} epochs. The slides print no accuracy for this exercise."
        ),
    ]


def _answer_first_digit(models: Models) -> Generator[Progress, None, ExerciseAnswer]:
    import numpy as np

    run = yield from _train("dot", 4, 10, done=0, total=1)
    row = np.array(run.mean_matrix)[0]
    best = int(row.argmax())
    return ExerciseAnswer(
        (0, 3, 1).index(best) if best in (0, 3, 1) else 2,
        "The mean weights of the first output step over the test set are "
        + ", ".join(f"{weight:.3f}" for weight in row)
        + f" for inputs 1 to 4: the largest is on input {best + 1}. Nobody told the model where to look; it saw only "
        "sequences and their reversals.",
    )


def _view(name: str, pair: Sequence[str], model: str, title: str, spec: tuple[str, ...], **route: str) -> LiveView:
    arguments = {"model": model, "source": [pair[0]], "target": [pair[1]], "steps": True}
    return LiveView(name, "translate", arguments, route, title, spec=spec)


ALIGNMENT_PARTS: tuple[Part, ...] = (
    Prose(
        "Write the weights of all steps below each other and you get a matrix: one row for each word of the "
        "translation, one column for each word of the source. Nobody labeled these pairs of words; the alignment is a "
        "by-product of learning to translate. The lectures say that this introduces some explainability, and warn at "
        "once: that a model attends to the right thing does not mean that it does so for the right reason.",
        heading="Alignments",
        spec=("A16",),
    ),
    Computed("market", "“Ich muss auf den Markt gehen.”", _market, spec=("A15", "A16")),
    Prose(
        "Where two languages have the same word order, the large weights lie on the diagonal. They leave it where the "
        "order changes: a French adjective often follows its noun. Bahdanau's figure has `zone économique européenne` "
        "become `European Economic Area`. To see the alignment of exactly this translation, it is given to the "
        "decoder word by word instead of searched. That is called forced decoding, and it also tells how probable the "
        "model finds the translation.",
        spec=("A16",),
    ),
    Computed("cat", "“Le chat noir”: two words change places", _cat, spec=("A16",)),
    Exercise(
        "black",
        "Which word of “Le chat noir dort.” does the Transformer attend to most when it writes “black”?",
        ("Le", "chat", "noir", "dort."),
        _answer_black,
        spec=("A16",),
    ),
    Computed("area", "“European Economic Area”", _area, spec=("A16",)),
    _view(
        "area-view", AREA, TRANSFORMER, "The same, step by step: try other heads", ("A16", "A18"), layer="3", head="3"
    ),
    CodeBlock(
        "forced",
        "regard translate regard-fr-en \"Il m'a entarté.\" --target 'He hit me with a pie.'",
        language="shell",
        title="Forced decoding: the probability and the alignment of a given translation",
        spec=("A16", "A17"),
    ),
    Prose(
        "A hard alignment keeps only the largest weight of each row. Some words need several: the French verb "
        "`entarter` means to throw a pie at somebody. The slide's grid marks four English words for it. (Its rows are "
        "written il, a, m', entarté; a French speaker says il m'a entarté.)",
        spec=("A17",),
    ),
    Computed("pie", "“entarté”: one word for four", _pie, spec=("A17",)),
    _view("pie-view", PIE, LSTM, "The grid as a hard alignment", ("A17",), alignment="hard"),
    Exercise(
        "pie-of-what",
        "Which French word does the LSTM attend to most when it writes “pie”?",
        ("il", "m'a", "entarté"),
        _answer_pie,
        spec=("A17",),
    ),
)

REVERSAL_PARTS: tuple[Part, ...] = (
    Prose(
        "Back to the reversed digits. With attention the right weights can be drawn in advance: to write its first "
        "digit the decoder must look at the last one it read, then at the one before, and so on.",
        heading="The bottleneck removed",
        spec=("B5",),
    ),
    Computed("four-digits", "Attention weights of the reversal", _four_digits, slow=True, spec=("B5",)),
    Exercise(
        "first-digit",
        "A trained model with attention writes the first digit of its output. Which input has the largest weight?",
        ("the first", "the last", "all four about equally"),
        _answer_first_digit,
        slow=True,
        spec=("B5",),
    ),
    Prose(
        "Now the lecture's exercise, exactly as it is written: change `n_steps_in` to 20 and `n_features` to 16, keep "
        "everything else, and train without attention and with it. This takes about three minutes.",
        spec=("B4", "A2"),
    ),
    Computed("longer", "20 digits of 16, without and with attention", _exercise, slow=True, spec=("A2", "B4", "B5")),
    CodeBlock(
        "reversal",
        "from regard.lessons.reverse import create_dataset, evaluate, new_model, train_reverse\n\n"
        "data = create_dataset(200, 50, n_timesteps_in=4, n_features=10)\n"
        "model = new_model(data, score='dot', recipe='luong')  # or 'general', 'additive'; or recipe='deck'\n"
        "for epoch in train_reverse(model, data, epochs=2):\n"
        "    print(epoch.number, epoch.loss)\n"
        "print(evaluate(model, data).attention[0])",
        title="Three scores and two recipes",
        spec=("A6", "A7", "A8", "A10", "A11", "B5"),
    ),
)
