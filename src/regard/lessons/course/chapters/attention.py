"""Chapter: Attention and its five steps. The parts about alignments and the reversal are in `alignment`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import (
    Chapter,
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
from regard.lessons.course.chapters.alignment import ALIGNMENT_PARTS, REVERSAL_PARTS
from regard.render.story import BarChart, NumberMatrix, Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from regard.inference.translation.translator import Alignment
    from regard.interpret.translation import TranslationSteps

TRANSLATOR = "regard-lstm-fr-en"
SOURCE, TARGET = "Je suis étudiant", "I am a student"
QUERY = [1.0, 0.0, 2.0]
VALUES = [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.5], [0.5, 0.5, 0.0]]


def _weighted_average(models: Models) -> list[StoryBlock]:
    import torch

    from regard.nn.attention import LuongDotAttention

    query, values = torch.tensor([QUERY]), torch.tensor([VALUES])
    context, weights = LuongDotAttention()(query, values)
    scores = values[0] @ query[0]
    rows = [
        (f"value {number}", " ".join(f"{x:g}" for x in value), f"{score:.2f}", f"{weight:.3f}")
        for number, (value, score, weight) in enumerate(
            zip(VALUES, scores.tolist(), weights[0, :, 0].tolist(), strict=True), start=1
        )
    ]
    shapes = StoryTable(
        headers=("tensor", "shape in the lecture's code", "shape here"),
        rows=[
            ("query", "(batch_size, hidden_size)", str(tuple(query.shape))),
            ("values", "(batch_size, max_length, hidden_size)", str(tuple(values.shape))),
            ("attention_weights", "(batch_size, max_length, 1)", str(tuple(weights.shape))),
            ("context_vector", "(batch_size, hidden_size)", str(tuple(context.shape))),
        ],
        caption="The lecture's layer LuongDotAttention(query, values) -> (context, weights)",
    )
    total, mixed = weights.sum().item(), " ".join(f"{x:.3f}" for x in context[0].tolist())
    return [
        StoryTable(
            headers=("", "vector", "score: query · value", "weight"),
            rows=rows,
            caption=f"Query {' '.join(f'{x:g}' for x in QUERY)} and a set of four values",
        ),
        Paragraph(text=f"The weights sum to {total:.6f}; the weighted average of the values is {mixed}."),
        shapes,
    ]


def _states(models: Models) -> tuple[list[float], list[list[float]], list[str]]:
    """The decoder's state that writes "student", the encoder's states, and the tokens of the source."""
    steps = _decode(models)
    hypothesis = steps.hypotheses[0]
    assert hypothesis.attention is not None and steps.encoder is not None
    last = len(hypothesis.steps) - 2  # before the end token
    return hypothesis.attention.query[0, 0, last].tolist(), steps.encoder.states.tolist(), steps.source.tokens


def _decode(models: Models, source: str = SOURCE, target: str = TARGET) -> TranslationSteps:
    """Every step of the given translation."""
    from regard.inference.translation.forced_decoding import force_targets
    from regard.inference.translation.translator import use_translator
    from regard.interpret.translation import replay_translations

    with use_translator(models, TRANSLATOR) as translator:
        [forced] = force_targets(translator, source, [target])
        return replay_translations(translator, source, [forced.translation], name=TRANSLATOR, forced=True)


def _three_scores(models: Models) -> list[StoryBlock]:
    import torch

    from regard.nn.attention import Attention, bahdanau, luong_dot, luong_general

    state, states, tokens = _states(models)
    query, values = torch.tensor([state]), torch.tensor([states])
    width = query.shape[-1]
    kinds: list[tuple[str, str, Attention]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kinds.append(("Luong dot", "s · h", luong_dot()))
        kinds.append(("Luong general", "s · W h", luong_general(width)))
        kinds.append(("Bahdanau", "v · tanh(W [s; h])", bahdanau(width)))
    rows, sizes = [], []
    with torch.inference_mode():
        for name, formula, module in kinds:
            weights = module.context(query, values)[1][0, :, 0]
            rows.append((name, *(f"{weight:.3f}" for weight in weights.tolist()), f"{weights.sum():.3f}"))
            sizes.append((name, formula, f"{sum(p.numel() for p in module.parameters()):,}"))
    return [
        StoryTable(headers=("score", "formula", "parameters"), rows=sizes, caption=f"States of {width} numbers"),
        StoryTable(
            headers=("new weights", *(token.strip() for token in tokens), "sum"),
            rows=rows,
            caption="Attention weights over the same encoder states; W and v are still random",
        ),
    ]


def _softmax(models: Models) -> list[StoryBlock]:
    import torch

    from regard.nn.attention import luong_dot

    huge = torch.tensor([1000.0, 999.0, 0.0])
    naive = huge.exp() / huge.exp().sum()
    stable = huge.softmax(0)
    query, values = torch.ones(1, 2), torch.tensor([[[1.0, 0.0], [0.5, 0.5], [9.0, 9.0]]])
    keep = torch.tensor([[True, True, False]])
    plain, masked = (luong_dot().context(query, values, mask)[1][0, :, 0].tolist() for mask in (None, keep))

    def cells(numbers: list[float]) -> list[str]:
        return [f"{number:.4f}" for number in numbers]

    return [
        StoryTable(
            headers=("softmax of 1000, 999, 0", "first", "second", "third"),
            rows=[
                ("as the formula is written", *cells(naive.tolist())),
                ("after subtracting the largest score", *cells(stable.tolist())),
            ],
            caption="exp(1000) is no floating-point number; the softmax does not change if all scores lose the same",
        ),
        StoryTable(
            headers=("weights", "word 1", "word 2", "padding"),
            rows=[("padding attended to", *cells(plain)), ("padding masked", *cells(masked))],
            caption="Sentences of a batch are padded to one length; a mask gives the padding no weight",
        ),
    ]


def _encoder_returns(models: Models) -> list[StoryBlock]:
    import torch

    from regard.inference.translation.translator import use_translator

    with use_translator(models, TRANSLATOR) as translator, torch.inference_mode():
        ids = torch.tensor(translator.subwords.encode_sources([SOURCE]), device=translator.device)
        state = translator.model.encode(ids)
    rows = [
        ("return_state=True", "the last state", str(tuple(state.hidden[0][-1].shape)), "all that a plain decoder gets"),
        ("return_sequences=True", "every state", str(tuple(state.memory.shape)), "what attention chooses from"),
    ]
    headers = ("Keras option", "the encoder returns", "shape", "")
    return [StoryTable(headers=headers, rows=rows, text_columns=[1, 3], caption=f'Encoding "{SOURCE}"')]


def _recipes(models: Models) -> list[StoryBlock]:
    rows = []
    for recipe, query, place in (
        ("luong", "the new state, after the cell", "after the cell: [state; context] -> layer -> word"),
        ("deck", "the previous state, before the cell", "before the cell: [context; input] -> cell -> word"),
    ):
        new, previous = _query_distance(recipe)
        rows.append((recipe, query, place, f"{new:.4f}", f"{previous:.4f}"))
    headers = ("recipe", "query", "where the context goes", "distance to the new state", "to the previous state")
    caption = "Two recipes of one decoder; the last columns measure which state asked, in a small model at step 3"
    return [StoryTable(headers=headers, rows=rows, text_columns=[1, 2], caption=caption)]


def _query_distance(recipe: str) -> tuple[float, float]:
    """How far the query of step 3 is from the decoder's state after that step, and before it."""
    import torch

    from regard.lessons.reverse import create_dataset, new_model
    from regard.nn.recording import record

    data = create_dataset(20, 5, 4, 10)
    model = new_model(data, score="dot", recipe=recipe).eval()  # type: ignore[arg-type]
    with torch.inference_mode(), record(model) as tape:
        model(data.X_test[:1], steps=4)
    states, query = tape.hidden("decoder")[1][0], tape.queries("cross", "decoder")[0][0, 0, 2]
    return float((query - states[2]).norm()), float((query - states[1]).norm())


def _five_steps(models: Models) -> list[StoryBlock]:
    import numpy as np

    steps = _decode(models)
    hypothesis = steps.hypotheses[0]
    assert hypothesis.attention is not None and steps.encoder is not None
    scores, weights = hypothesis.attention.scores[0, 0, 0], hypothesis.attention.weights[0, 0, 0]
    states, context = steps.encoder.states, hypothesis.attention.context[0, 0, 0]
    tokens = [token.strip() for token in steps.source.tokens]
    num_shown = 4
    numbers = list(map(str, range(num_shown)))
    weighted = weights[:, None] * states
    number = steps.time_steps_read + 1
    return [
        Paragraph(
            text=f"Time step {number}: the decoder is about to write {hypothesis.steps[0].token.strip()!r}. "
            f"Each vector has {states.shape[1]} numbers, of which the first {num_shown} are shown."
        ),
        NumberMatrix(
            title="1. Look at the encoder's states", values=states[:, :num_shown].tolist(), rows=tokens, columns=numbers
        ),
        StoryTable(
            headers=("source", "2. score", "3. softmax"),
            rows=[
                (token, f"{score:.3f}", f"{weight:.3f}")
                for token, score, weight in zip(tokens, scores, weights, strict=True)
            ]
            + [("sum", "", f"{weights.sum():.3f}")],
            caption="2. Give each state a score, 3. turn the scores into weights",
        ),
        NumberMatrix(
            title="4. Multiply each state by its weight: amplify some, drown out the others",
            values=weighted[:, :num_shown].tolist(),
            rows=tokens,
            columns=numbers,
            digits=3,
        ),
        NumberMatrix(
            title="5. Sum: the context vector of this step",
            values=[weighted.sum(0)[:num_shown].tolist(), context[:num_shown].tolist()],
            rows=["sum of the rows above", "the model's own context"],
            columns=numbers,
            digits=3,
        ),
        Paragraph(
            text="The largest difference between the two, over all numbers of the vector, is "
            f"{np.abs(weighted.sum(0) - context).max():.1e}."
        ),
    ]


def _words(models: Models) -> Alignment:
    """The attention between the words of the two sentences; pieces of a word are taken together."""
    from regard.inference.translation.forced_decoding import force_targets
    from regard.inference.translation.translator import use_translator

    with use_translator(models, TRANSLATOR) as translator:
        [forced] = force_targets(translator, SOURCE, [TARGET])
    assert forced.alignment is not None
    return forced.alignment


def _time_steps(models: Models) -> list[StoryBlock]:
    words = _words(models)
    read, written = len(words.source), len(words.target)
    rows = [(str(number), "reads", word, "", "") for number, word in enumerate(words.source, start=1)]
    for number, (word, best, weights) in enumerate(
        zip(words.target, words.hard(), words.weights, strict=True), start=read + 1
    ):
        rows.append((str(number), "writes", word, words.source[best], f"{weights[best]:.3f}"))
    deck = [
        DeckRow("time steps in all", "7", str(read + written), f"{read} to read, {written} to write; no end tokens"),
        DeckRow("first step that writes", "4", str(read + 1)),
        DeckRow("in focus at the last step", "étudiant", rows[-1][3], f"weight {rows[-1][4]}"),
    ]
    headers = ("time step", "", "word", "largest weight on", "weight")
    return [
        StoryTable(headers=headers, rows=rows, text_columns=[1, 2, 3], caption="Attention at every decoding step"),
        beside_deck(deck),
    ]


def _last_step(models: Models) -> list[StoryBlock]:
    words = _words(models)
    rows = list(zip(words.source, words.weights[-1], strict=True))
    return [BarChart.of_probabilities("Where the decoder looks when it writes “student”", rows)]


def _answer_sum(models: Models) -> ExerciseAnswer:
    steps = _decode(models)
    assert steps.hypotheses[0].attention is not None
    sums = steps.hypotheses[0].attention.weights[0, 0].sum(-1)
    return ExerciseAnswer(
        0 if abs(sums - 1).max() < 1e-4 else 1,
        f"The sums of the {len(sums)} steps of “{TARGET}” are {', '.join(f'{one:.4f}' for one in sums)}: a softmax "
        "always gives weights that sum to 1, however long the sentence is.",
    )


def _answer_dot(models: Models) -> ExerciseAnswer:
    from regard.nn.attention import luong_dot, luong_general

    dot, general = (sum(p.numel() for p in one.parameters()) for one in (luong_dot(), luong_general(16)))
    return ExerciseAnswer(
        (0, 16, 256).index(dot),
        f"The dot score has {dot} parameters: it only multiplies what is there. The general score has a matrix between "
        f"the two states, {general} numbers for 16 units.",
    )


def _answer_shift(models: Models) -> ExerciseAnswer:
    import torch

    scores = torch.tensor([2.0, 1.0, -1.0])
    before, after = scores.softmax(0), (scores + 100).softmax(0)
    change = float((before - after).abs().max())
    return ExerciseAnswer(
        0 if change < 1e-6 else 1,
        f"Weights before: {_list(before)}; after: {_list(after)}. The factor exp(100) is in the numerator and in the "
        "denominator. That is why a softmax may subtract the largest score first, which keeps exp from overflowing.",
    )


def _answer_double(models: Models) -> ExerciseAnswer:
    import torch

    scores = torch.tensor([2.0, 1.0, -1.0])
    before, after = scores.softmax(0), (2 * scores).softmax(0)
    return ExerciseAnswer(
        0 if after.max() > before.max() else 1,
        f"Weights before: {_list(before)}; after: {_list(after)}. Scores grow with the length of the vectors; the "
        "Transformer therefore divides them by the square root of that length.",
    )


def _list(numbers: object) -> str:
    return ", ".join(f"{number:.3f}" for number in numbers.tolist())  # type: ignore[attr-defined]


def _answer_focus(models: Models) -> ExerciseAnswer:
    words = _words(models)
    best = words.hard()[-1]
    return ExerciseAnswer(
        best,
        f"The largest weight is that of “{words.source[best]}”, {words.weights[-1][best]:.3f}. The slide of time step "
        "7 shows the same: the decoder looks at the word it is about to translate.",
    )


def _answer_recipe(models: Models) -> ExerciseAnswer:
    new, previous = _query_distance("deck")
    return ExerciseAnswer(
        1 if previous < new else 0,
        f"In the code the query of a step is the state before it: their distance is {previous:.4f}, and {new:.4f} to "
        "the state after it. The six-step list on the slides describes the other recipe, in which the new state asks "
        "(erratum P7). Regard has both: `recipe='luong'` and `recipe='deck'`.",
    )


IDEA: tuple[Part, ...] = (
    Prose(
        "The bottleneck is a choice: why hand over only the last state, if the encoder has computed one at every step? "
        "Attention keeps all of them. At each step the decoder asks which of them matter now, and takes a weighted "
        "average. Bahdanau and colleagues proposed it in 2014, Luong and colleagues refined it in 2015.\n\n"
        "In general: given a set of value vectors and one query vector, attention computes a weighted sum of the "
        "values that depends on the query. The sum is a selective summary, and it has a fixed size, however large the "
        "set is.",
        heading="A weighted average, and nothing more",
        spec=("A4", "A19", "A20"),
    ),
    Computed("weighted-average", "One query and a set of values", _weighted_average, spec=("A4", "A9", "A19")),
    Exercise(
        "sum-of-weights",
        "The decoder writes a long sentence. At each of its steps, what do its attention weights over the source sum "
        "to?",
        ("1", "the number of source words", "it differs from step to step"),
        _answer_sum,
        spec=("A4",),
    ),
    CodeBlock(
        "any-set",
        "import torch\n\nfrom regard.nn.attention import LuongDotAttention\n\n"
        "query, values = torch.randn(1, 16), torch.randn(1, 7, 16)  # any set of seven vectors\n"
        "context, weights = LuongDotAttention()(query, values)\n"
        "print(context.shape, weights.shape, weights.sum().item())",
        title="Attention over any set of vectors",
        spec=("A9", "A19"),
    ),
    Computed("softmax", "The softmax, and what padding does to it", _softmax, spec=("A5",)),
    Exercise(
        "shift",
        "All scores of a step get 100 larger. What happens to the weights?",
        ("nothing", "they get sharper", "they get flatter"),
        _answer_shift,
        spec=("A5",),
    ),
    Exercise(
        "double",
        "All scores of a step are doubled. What happens to the weights?",
        ("they get sharper", "they get flatter", "nothing"),
        _answer_double,
        spec=("A5",),
    ),
    Prose(
        "The score may be as simple as a product of the decoder's state with each encoder state. A matrix between the "
        "two lets the model learn what to compare; Bahdanau's score adds the two states inside a small network.",
        heading="Three scores",
        spec=("A6", "A7", "A8"),
    ),
    Computed("three-scores", "Dot, general and additive", _three_scores, spec=("A6", "A7", "A8", "A20")),
    Exercise(
        "parameters-of-dot",
        "The states have 16 units. How many trainable parameters does the dot score have?",
        ("0", "16", "256"),
        _answer_dot,
        spec=("A6",),
    ),
)

STEPS: tuple[Part, ...] = (
    Prose(
        "The encoder has to change in one way: it must return all of its states, not just the last. The decoder then "
        "looks at the states, gives each a score, turns the scores into weights, multiplies, and sums. The numbers "
        "below are those of a trained LSTM translator.",
        heading="The five steps",
        spec=("A12", "A13"),
    ),
    Computed("encoder-returns", "All states instead of one", _encoder_returns, spec=("A12",)),
    Computed("five-steps", "The five steps with numbers", _five_steps, spec=("A13",)),
    LiveView(
        "time-step-4",
        "translate",
        {"model": TRANSLATOR, "source": [SOURCE], "target": [TARGET], "steps": True},
        title="Time step 4: press the sub-steps, then move the slider to time step 7",
        spec=("A13", "A14", "A18"),
    ),
    Prose(
        "The lectures count the steps of encoder and decoder together: three to read the French words, four to write "
        "the English ones. Attention happens at every one of the last four. Because it reaches from the decoder into "
        "the encoder, it is called encoder-decoder attention.",
        spec=("A14", "A18"),
    ),
    Computed("time-steps", "Time steps 1 to 7", _time_steps, spec=("A14", "A18")),
    Exercise(
        "step-7",
        "At time step 7 the decoder writes “student”. Which French word has the largest weight?",
        ("Je", "suis", "étudiant"),
        _answer_focus,
        spec=("A14",),
    ),
    Computed("last-step", "The weights of the last step", _last_step, spec=("A14",)),
    Prose(
        "What becomes of the context? The slides give two answers without saying so. The list of six steps runs the "
        "cell first, attends with its new state, and predicts from state and context together. The notebook attends "
        "with the previous state and puts the context in front of the cell's input.",
        heading="Two recipes",
        spec=("A10", "A11", "P7"),
    ),
    Computed("recipes", "Which state asks, and where the answer goes", _recipes, spec=("A10", "A11", "P7")),
    Exercise(
        "whose-query",
        "In the lecture's code, which decoder state is the query of a step?",
        ("the state after the step", "the state before the step", "the encoder's last state, at every step"),
        _answer_recipe,
        spec=("A11", "P7"),
    ),
)

CHAPTER = Chapter(
    name="attention",
    title="Attention and its five steps",
    summary="At every step the decoder looks back at all states of the encoder and takes a weighted average of them.",
    parts=(*IDEA, *STEPS, *ALIGNMENT_PARTS, *REVERSAL_PARTS),
    reading=("bahdanau2015", "luong2015", "alammar2018nmt", "rudin2019"),
)
