"""The computed parts and answers of the chapter on fine-tuning and features."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from regard.checkpoints.models import Models
from regard.events import Event
from regard.lessons.course.chapter import DeckRow, ExerciseAnswer, beside_deck
from regard.lessons.course.data_sets import CLONE, SST2, find_data, missing_data, reviews
from regard.render.story import BarChart, ChartBar, Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from regard.interpret.probes.feature_walk import FeatureWalk

MODEL = "regard-bert"
SPAM, TOXIC = "regard-spam", "regard-toxic"
MESSAGES = (
    ("Buy these pills", "Spam"),
    ("Win cash prizes", "Spam"),
    ("Dear Mr. Atreides, please find attached...", "Not Spam"),
)
COMMENT = "Actually, AI does not exist. It is just ML."
DATA_SETS = (
    ("SST-2", "one sentence", "is a review positive?", "classify"),
    ("CoLA", "one sentence", "is a sentence grammatical?", "classify"),
    ("MNLI", "pair", "does A entail or contradict B, or neither?", "pair"),
    ("QQP", "pair", "do two questions ask the same?", "pair"),
    ("QNLI", "pair", "does the paragraph hold the answer?", "pair"),
    ("MRPC", "pair", "do two sentences say the same?", "pair"),
    ("RTE", "pair", "does A entail B?", "pair"),
    ("STS-B", "pair", "how similar are they, from 0 to 5?", "regress"),
    ("SWAG", "a beginning and four endings", "which ending fits?", "choose"),
    ("SQuAD v1.1", "question and text", "where does the answer start and end?", "answer"),
    ("CoNLL-2003", "one sentence", "which words are names, and of what?", "tag"),
)
MEASURED = CLONE / "benchmarks" / "results"


def heads(models: Models) -> list[StoryBlock]:
    """The layer that each task adds, and its parameters beside those of the encoder."""
    import torch

    from regard.tasks.encoder_with_head import TaskHead

    with models.use(MODEL) as loaded:
        width = int(loaded.model.config.hidden_size)  # type: ignore[arg-type, union-attr]
        encoder = sum(parameter.numel() for parameter in loaded.model.parameters())
    kinds = (
        ("one sentence or a pair, 2 classes", "vector of [CLS]", 2),
        ("a pair, 3 classes (MNLI)", "vector of [CLS]", 3),
        ("similarity (STS-B)", "vector of [CLS]", 1),
        ("ending (SWAG)", "vector of [CLS] of each ending", 1),
        ("tags (CoNLL-2003), 9 of them", "vector of every token", 9),
        ("answer (SQuAD): start and end", "vector of every token", 2),
    )
    rows = []
    for name, reads, outputs in kinds:
        with torch.device("meta"):
            head = TaskHead(width, outputs, pool=None, dropout=0.0)
        count = sum(parameter.numel() for parameter in head.parameters())
        rows.append((name, reads, str(outputs), f"{count:,}", f"{count / encoder:.4%}"))
    headers = ("task", "input", "outputs", "new parameters", f"of {MODEL}'s {encoder / 1e6:.1f} M")
    return [StoryTable(headers=headers, rows=rows, text_columns=[1])]


def data_sets(models: Models) -> list[StoryBlock]:
    """The data sets of the deck, and what our pretrained model reaches on those that were measured."""
    files = {"SST-2": "sst2", "CoLA": "cola", "MRPC": "mrpc", "RTE": "rte", "STS-B": "stsb"}
    files |= {"SQuAD v1.1": "squad", "CoNLL-2003": "conll"}
    rows = []
    for name, reads, question, task in DATA_SETS:
        score = "-"
        path = MEASURED / "tasks" / f"{files.get(name)}-{MODEL}.json"
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            score = f"{found['mean'][found['score']]:.1f} ({found['score']})"
        rows.append((name, reads, question, f"regard train {task}", score))
    table = StoryTable(
        headers=("data", "input", "question", "command", f"{MODEL}, tuned"), rows=rows, text_columns=[1, 2, 3]
    )
    note = (
        f"Scores on dev from {MEASURED.parent.name}/{MEASURED.name}/tasks, measured once with the commands named there."
    )
    if not (MEASURED / "tasks").is_dir():
        note = "Our measured scores are in benchmarks/results/tasks of the repository, which is not on this machine."
    return [table, Paragraph(text=note)]


def squad(models: Models) -> list[StoryBlock]:
    """The leader board and the other scores, as the deck prints them."""
    first = StoryTable(
        headers=("rank", "model", "EM", "F1"),
        rows=(
            ("", "Human Performance, Stanford University (Rajpurkar et al. '16)", "82.304", "91.221"),
            ("12", "BERT (single model), Google AI Language, Oct 05, 2018", "85.083", "91.835"),
        ),
        caption="SQuAD v1.1, test set, as the deck prints it",
        text_columns=[1],
    )
    second = StoryTable(
        headers=("SQuAD v1.1 Leaderboard (Oct 8th 2018)", "Test EM", "Test F1"),
        rows=(
            ("1st Place Ensemble - BERT", "87.4", "93.2"),
            ("2nd Place Ensemble - nlnet", "86.0", "91.7"),
            ("1st Place Single Model - BERT", "85.1", "91.8"),
            ("2nd Place Single Model - nlnet", "83.5", "90.1"),
        ),
        caption="The leader board, as the deck prints it",
    )
    third = StoryTable(
        headers=("system", "MultiNLI", "Question NLI", "SWAG"),
        rows=(("BERT", "86.7", "91.1", "86.3"), ("OpenAI GPT (Prev. SOTA)", "82.2", "88.1", "75.0")),
        caption="Inference tasks, as the deck prints them",
    )
    path = MEASURED / "tasks" / f"squad-{MODEL}.json"
    ours: StoryBlock = Paragraph(text="Our own scores on SQuAD are in benchmarks/results/tasks of the repository.")
    if path.is_file():
        mean = json.loads(path.read_text(encoding="utf-8"))["mean"]
        names = {"exact_match": "EM", "f1": "F1"}
        ours = beside_deck(
            [
                DeckRow(f"{label}, v1.1", printed, f"{mean[name]:.1f}", f"{MODEL}, a fifth of BERT base's size, on dev")
                for (name, label), printed in zip(names.items(), ("85.083", "91.835"), strict=True)
                if name in mean
            ]
            + [
                DeckRow(
                    "unanswerable questions", '"might be unanswerable"', "none in v1.1", "that is version 2.0", "P11"
                )
            ]
        )
    return [first, second, third, ours]


def spam(models: Models) -> list[StoryBlock]:
    """The three messages of the deck with our model."""
    from regard.known import builtin_names

    if SPAM not in builtin_names():
        return [_without(SPAM, "regard train classify --train messages.tsv --output spam")]
    rows = []
    for (text, label), answer in zip(MESSAGES, _predict(models, SPAM, [text for text, _ in MESSAGES]), strict=True):
        rows.append(DeckRow(text, label, _answer_text(answer)))
    note = (
        "The model learned from text messages, where spam advertises ring tones and prizes; a message of three words "
        "that does not sound like its examples may fool it."
    )
    return [beside_deck(rows, caption=f"The messages of the deck, classified by {SPAM}"), Paragraph(text=note)]


def toxic(models: Models) -> list[StoryBlock]:
    """The comment of the deck with our model."""
    from regard.known import builtin_names

    if TOXIC not in builtin_names():
        return [_without(TOXIC, "regard train classify --train comments.tsv --output toxic")]
    [answer] = _predict(models, TOXIC, [COMMENT])
    bars = BarChart.of_probabilities(
        f"{TOXIC}: {COMMENT}", sorted(answer["probabilities"].items(), key=lambda one: -one[1])
    )
    rows = [DeckRow(COMMENT, "99% toxic comment", _answer_text(answer), "the deck is joking")]
    return [bars, beside_deck(rows)]


def _without(name: str, command: str) -> Paragraph:
    return Paragraph(text=f"This installation has no model {name}. Train one with labeled texts of your own: {command}")


def _answer_text(answer: Mapping[str, Any]) -> str:
    return f"{answer['label']} ({answer['probabilities'][answer['label']]:.1%})"


def _predict(models: Models, name: str, texts: list[str]) -> list[Mapping[str, Any]]:
    from regard.tasks.fine_tuned_model import fine_tuned_of

    with models.use(name) as loaded:
        return list(fine_tuned_of(loaded).predict(texts).predictions)


def walk(models: Models, *, pooling: str = "cls") -> Generator[Event, None, FeatureWalk]:
    """The pipeline of the deck on the built-in reviews, with and without a mask."""
    from regard.data.examples import TextExample
    from regard.interpret.probes.feature_walk import feature_walk

    examples = [TextExample(text, label=label) for text, label in reviews()]
    with models.use(MODEL) as loaded:
        return (yield from feature_walk(loaded, examples, pooling=pooling, as_in_deck=True))


def pipeline(models: Models) -> Generator[Event, None, list[StoryBlock]]:
    """The stages in numbers, beside the deck's."""
    found = yield from walk(models)
    texts, longest, width = found.hidden
    assert found.unmasked is not None and found.similarity is not None
    sst2 = find_data(SST2)
    lines = len(sst2.read_text(encoding="utf-8").splitlines()) if sst2 else None
    rows = [
        DeckRow("examples", "2,000 of SST-2", f"{texts} reviews of our own", f"SST-2 has {lines:,}" if lines else ""),
        DeckRow("longest text, in tokens", "66", str(longest), "the deck's own rows have 59, or 67 of all", "P15"),
        DeckRow("tensor of hidden states", "2000 x 66 x 768", f"{texts} x {longest} x {width}"),
        DeckRow("features, the slice [:, 0, :]", "2000 x 768", f"{texts} x {found.slice[1]}"),
        DeckRow("rows 0 to 1,499 to train", "75%", f"{found.masked.train} of {texts}"),
        DeckRow("accuracy", "-", f"{found.masked.mean:.1f} ± {found.masked.deviation:.1f}%", "5-fold cross-validation"),
        DeckRow(
            "accuracy without attention mask",
            "-",
            f"{found.unmasked.mean:.1f} ± {found.unmasked.deviation:.1f}%",
            "the deck's code has no mask",
            "P8",
        ),
    ]
    table = StoryTable(
        headers=("text", *(str(number) for number in range(4)), "...", str(width - 1), "label"),
        rows=[
            (
                text if len(text) <= 40 else f"{text[:37]}...",
                *(f"{value:.4f}" for value in vector[:4]),
                "...",
                f"{vector[-1]:.4f}",
                label,
            )
            for text, vector, label in zip(found.texts, found.features, found.labels, strict=True)
        ],
        caption="The first rows of the features, with their labels",
    )
    about = (
        f"{found.padding:.0f}% of the padded matrix is padding. Without a mask every token attends to it: the vectors "
        f"of a text with and without mask have a cosine of {found.similarity / 100:.3f} on average."
    )
    return [beside_deck(rows), table, Paragraph(text=about)]


def frozen_or_tuned(models: Models) -> list[StoryBlock]:
    """Features of the frozen model beside the fine-tuned one, measured on SST-2."""
    path = MEASURED / f"{MODEL}.json"
    if not path.is_file():
        text = (
            "The comparison was measured on SST-2 and is in benchmarks/results of the repository, not on this machine."
        )
        return [Paragraph(text=text)]
    found = json.loads(path.read_text(encoding="utf-8"))
    frozen = found["features_-1"]
    fine_tuned = found["sst2"]
    rows = [
        ("frozen, [CLS] of the last layer", 100 * frozen["cls"]),
        ("frozen, mean of all tokens", 100 * frozen["mean"]),
        ("frozen, mean, scaled vectors", 100 * frozen["mean scaled"]),
        ("fine-tuned, mean of three seeds", 100 * fine_tuned["mean"]),
    ]
    bars = BarChart(
        title=f"Accuracy on SST-2 with {MODEL}",
        bars=[ChartBar(name=name, value=value, text=f"{value:.1f}%") for name, value in rows],
    )
    seeds = ", ".join(f"{100 * one:.1f}" for one in fine_tuned["accuracy"])
    note = (
        f"Read from benchmarks/results/{path.name} ({found['date']}). Logistic regression on the features of the first "
        "2,000 training rows, mean of 20 random splits; fine-tuning used all training rows and was scored on dev, with "
        f"three seeds: {seeds}."
    )
    return [bars, Paragraph(text=note)]


def frozen_or_tuned_here(models: Models) -> Generator[Event, None, list[StoryBlock]]:
    """Train a head alone, and then all weights, on the built-in reviews."""
    from regard.events import Progress
    from regard.training.recipes.finetuning.fit import fit

    rows = reviews()
    held = [row for number, row in enumerate(rows) if number % 4 < 2 and number % 8 < 4]
    train = [row for row in rows if row not in held]
    scores = []
    for done, (name, frozen) in enumerate((("frozen encoder, new head only", True), ("all weights", False))):
        yield Progress(stage=f"training: {name}", done=done, total=2, unit="runs")
        fine_tuned = fit(train, dev=held, model=MODEL, epochs=8, batch_size=8, frozen=frozen, device="cpu")
        answers = fine_tuned.predict([text for text, _ in held]).predictions
        right = sum(one["label"] == label for one, (_, label) in zip(answers, held, strict=True))
        scores.append((name, f"{right} of {len(held)}", f"{fine_tuned.report.best.losses[-1]:.3f}"))
    return [
        StoryTable(
            headers=("trained", "correct on held-out reviews", "training loss at the end"),
            rows=scores,
            caption=f"{len(train)} reviews to train on, 8 epochs",
        )
    ]


def layer_table(models: Models) -> list[StoryBlock]:
    """The deck's table beside ours, measured on CoNLL-2003."""
    from regard.interpret.probes.probe_heads import DECK, DECK_NOTE

    path = MEASURED / "layers-conll2003.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    scores = {} if found is None else {row["name"]: f"{row['score']:.1f}" for row in found["rows"]}
    rows = [
        DeckRow(name, f"{score:.1f}", scores.get(name, "not on this machine"), erratum="P9" if not number else "")
        for number, (name, score) in enumerate(DECK.items())
    ]
    about = DECK_NOTE
    if found is not None:
        about += (
            f" Ours: {found['model']}, {found['head']} heads trained on {found['train']:,} sentences and scored on "
            f"{found['dev']:,}, read from benchmarks/results/{path.name}."
        )
    return [beside_deck(rows, caption="CoNLL-2003, dev F1"), Paragraph(text=about)]


def answer_mask(models: Models) -> Generator[Event, None, ExerciseAnswer]:
    found = yield from walk(models)
    assert found.unmasked is not None and found.similarity is not None
    same = found.similarity > 99.9
    return ExerciseAnswer(
        0 if same else 1,
        f"The cosine of the two vectors of a text is {found.similarity / 100:.3f} on average, and the accuracy goes "
        f"from {found.masked.mean:.1f}% with mask to {found.unmasked.mean:.1f}% without.",
    )


def answer_pooling(models: Models) -> Generator[Event, None, ExerciseAnswer]:
    cls = yield from walk(models)
    mean = yield from walk(models, pooling="mean")
    difference = mean.masked.mean - cls.masked.mean
    return ExerciseAnswer(
        0 if difference < 0 else 1,
        f"[CLS] gives {cls.masked.mean:.1f} ± {cls.masked.deviation:.1f}%, the mean {mean.masked.mean:.1f} ± "
        f"{mean.masked.deviation:.1f}%. Compare the difference with the spread before you believe it.",
    )


def answer_guess(models: Models) -> Generator[Event, None, ExerciseAnswer]:
    found = yield from walk(models)
    return ExerciseAnswer(
        min(range(3), key=lambda choice: abs((0, 50, 75)[choice] - found.masked.guess)),
        f"There are {' and '.join(f'{count} {label}' for label, count in found.counts.items())} reviews: the most "
        f"common label alone is right for {found.masked.guess:.0f}% of the test texts.",
    )


def answer_head(models: Models) -> ExerciseAnswer:
    with models.use(MODEL) as loaded:
        width = int(loaded.model.config.hidden_size)  # type: ignore[arg-type, union-attr]
    new = 2 * width + 2
    return ExerciseAnswer(
        0,
        f"Two outputs of {width} weights and a bias each: {new:,} numbers. BERT base, 768 wide, gets {2 * 768 + 2:,}.",
    )


def answer_cells(models: Models) -> Generator[Event, None, ExerciseAnswer]:
    found = yield from walk(models)
    kept = 100 / found.hidden[1]
    return ExerciseAnswer(
        0 if kept < 10 else 1,
        f"Of {found.hidden[0]} x {found.hidden[1]} x {found.hidden[2]} numbers the slice keeps one token of "
        f"{found.hidden[1]}: {kept:.1f}%. In the deck it is one of 66: {100 / 66:.1f}%.",
    )


def answer_split(models: Models) -> Generator[Event, None, ExerciseAnswer]:
    found = yield from walk(models)
    step = 100 / found.masked.test
    return ExerciseAnswer(
        2 if step > 4 else 1,
        f"There are {found.masked.test} test texts, so each is worth {step:.2f} points; the folds of the "
        f"cross-validation range from {min(found.masked.folds):.0f}% to {max(found.masked.folds):.0f}%.",
    )


def answer_human(models: Models) -> ExerciseAnswer:
    gain = 91.835 - 91.221
    return ExerciseAnswer(
        0 if gain <= 0 else 1 if gain < 1 else 2,
        f"91.835 - 91.221 = {gain:.3f} points of F1, and 85.083 - 82.304 = {85.083 - 82.304:.3f} of exact match.",
    )


def sst2_rows(models: Models) -> list[StoryBlock]:
    """What SST-2 holds, if it is there."""
    from collections import Counter

    path = find_data(SST2)
    if path is None:
        return [Paragraph(text=missing_data(SST2) + " The reviews below are our own and come with Regard.")]
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    counts = Counter(label for _, label in rows)
    first = [(text if len(text) <= 90 else f"{text[:87]}...", label) for text, label in rows[:5]]
    table = StoryTable(headers=("0", "1"), rows=first, caption="The first rows of SST-2")
    deck = [
        DeckRow("rows of train.tsv", "-", f"{len(rows):,}", f"label 1: {counts['1']:,}, label 0: {counts['0']:,}"),
        DeckRow("rows that the deck uses", "2,000", "2,000", "1,500 to train, 500 to test"),
    ]
    return [table, beside_deck(deck)]
