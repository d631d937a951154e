"""Chapter: ELMo: vectors that depend on the context."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import (
    Chapter,
    CodeBlock,
    Computed,
    DeckRow,
    Exercise,
    ExerciseAnswer,
    LiveView,
    Prose,
    beside_deck,
)
from regard.lessons.course.chapters.layer_weights import ELMO, LAYER_PARTS, SENTENCE
from regard.render.story import (
    BarChart,
    Diagram,
    DiagramArrow,
    DiagramBox,
    FigureRow,
    StoryBlock,
    StoryTable,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BERT, GPT = "regard-bert", "regard-gpt"
PROMPT = "Let's stick to"
STICK = (
    SENTENCE,
    "Let's stick to the plan.",
    "The dog brought back the stick.",
    "He hit the drum with a stick.",
)
SAME_SENSE = {(0, 1), (2, 3)}
PAIRS = (
    ("train", "He took a train.", "He likes to train in the mornings."),
    ("help", "Help Prince Mayuko transfer huge inheritance.", "She asked for your help."),
)
# The word, what is before it and what is after it are changed in turn; all have the same number of words.
BASE, OTHER_LEFT, OTHER_RIGHT = "we will stick to the plan", "they always stick to the plan", "we will stick in my mind"
CHANGED = 1e-4  # of a cosine


def _vectors(models: Models, name: str, word: str, texts: Sequence[str], layers: str = "-1") -> NDArray[np.float32]:
    """The vectors (texts, width) of a word in each text; several layers are next to each other."""
    from regard.inference.embedding.engine import load_engine
    from regard.interpret.embeddings import find_word, word_vectors

    spans = [find_word(word, text, number) for number, text in enumerate(texts, start=1)]
    with models.use(name) as loaded:
        device = next(loaded.model.parameters()).device.type
        engine = load_engine((loaded.model, loaded.tokenizer), layers=layers, pooling="none", device=device)
        vectors, _ = word_vectors(engine, texts, spans, model=name)
    found: NDArray[np.float32] = vectors.swapaxes(0, 1).reshape(len(texts), -1)
    return found


def _cosines(models: Models, word: str, texts: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Cosines of the word's vectors: static (ELMo's own embedding), ELMo's and BERT's."""
    from regard.interpret.embeddings import cosine_similarity

    return {
        "static": cosine_similarity(_vectors(models, ELMO, word, texts, "0")),
        "ELMo": cosine_similarity(_vectors(models, ELMO, word, texts)),
        "BERT": cosine_similarity(_vectors(models, BERT, word, texts)),
    }


def _stick(models: Models) -> list[StoryBlock]:
    cosines = _cosines(models, "stick", STICK)
    rows = []
    for a, b in combinations(range(len(STICK)), 2):
        sense = "same" if (a, b) in SAME_SENSE else "different"
        rows.append((f"{a + 1} and {b + 1}", sense, *(f"{matrix[a, b]:.3f}" for matrix in cosines.values())))
    for name, same in (("mean, same sense", True), ("mean, different senses", False)):
        pairs = [pair for pair in combinations(range(len(STICK)), 2) if (pair in SAME_SENSE) is same]
        means = (sum(matrix[pair] for pair in pairs) / len(pairs) for matrix in cosines.values())
        rows.append((name, "", *(f"{mean:.3f}" for mean in means)))
    texts = [(str(number), text) for number, text in enumerate(STICK, start=1)]
    return [
        StoryTable(headers=("", "sentence"), rows=texts, text_columns=[1]),
        StoryTable(
            headers=("sentences", "sense", *cosines),
            rows=rows,
            text_columns=[1],
            caption="Cosine of the two vectors of “stick”",
        ),
    ]


def _homonyms(models: Models) -> list[StoryBlock]:
    rows = []
    for word, *texts in PAIRS:
        cosines = _cosines(models, word, texts)
        rows.append((word, f"{texts[0]} / {texts[1]}", *(f"{matrix[0, 1]:.3f}" for matrix in cosines.values())))
    headers = ("word", "sentences of the lectures", "static", "ELMo", "BERT")
    return [StoryTable(headers=headers, rows=rows, text_columns=[1], caption="Cosine of the word's two vectors")]


def _architecture(models: Models) -> list[StoryBlock]:
    with models.use(ELMO) as loaded:
        model: Any = loaded.model
        config = model.config
        layers = config.num_hidden_layers
        parts = [
            ("token embeddings", model.embedding),
            ("forward LSTMs", model.encoder.forwards),
            ("backward LSTMs", model.encoder.backwards),
            ("output layer, used by both", model.output),
        ]
        rows = [(name, f"{sum(p.numel() for p in part.parameters()):,}") for name, part in parts]
    boxes = [DiagramBox(key="e", text="embedding of the token", column=0.5, row=layers + 1)]
    arrows = []
    for column, direction in enumerate(("forward", "backward")):
        below = "e"
        for layer in range(1, layers + 1):
            key = f"{direction}{layer}"
            boxes.append(DiagramBox(key=key, text=f"{direction} LSTM {layer}", column=column, row=layers + 1 - layer))
            arrows.append(DiagramArrow(start=below, end=key))
            below = key
        goal = "next token" if direction == "forward" else "previous token"
        boxes.append(DiagramBox(key=goal, text=f"predicts the {goal}", column=column, row=0, strong=True))
        arrows.append(DiagramArrow(start=below, end=goal))
    return [
        Diagram(title="Two language models that share the embeddings", boxes=boxes, arrows=arrows),
        StoryTable(
            headers=("part", "parameters"),
            rows=rows,
            caption=f"{ELMO}: {layers} layers, {config.hidden_size} numbers per direction, "
            f"{config.vocab_size:,} tokens",
        ),
    ]


def _next_words(models: Models) -> list[StoryBlock]:
    from regard.inference.next_token import predict_next_token

    words = ("aardvark", "improvisation", "zyzzyva")
    with models.use(ELMO) as loaded:
        found = predict_next_token(loaded.model, loaded.tokenizer, PROMPT, top=8, targets=words)
    assert found.preceding is not None and found.targets is not None
    deck = dict(zip(words, ("0.1%", "10%", "0%"), strict=True))
    rows = [
        DeckRow(f"P({word})", deck[word], f"{found.targets[word]:.2e}", "the slide: for BERT's blank") for word in words
    ]
    bars = [
        BarChart.of_probabilities(title, [(one.token, one.probability) for one in candidates])
        for title, candidates in (
            (f"Forward: “{PROMPT} …”", found.following),
            (f"Backward: “… {PROMPT}”", found.preceding),
        )
    ]
    return [FigureRow(blocks=bars), beside_deck(rows, caption="The words of the slide; of several pieces, the product")]


def _taxonomy(models: Models) -> list[StoryBlock]:
    rows = []
    for name, (left, right) in _sensitivity(models).items():
        kind = "context-free" if not (left or right) else "contextual"
        direction = {(1, 1): "bidirectional", (1, 0): "unidirectional, from the left", (0, 1): "from the right"}
        rows.append((name, _change(left), _change(right), kind, direction.get((int(left > 0), int(right > 0)), "none")))
    headers = ("vector of “stick”", "words before changed", "words after changed", "kind", "direction")
    caption = "How far the vector turns (1 - cosine) when other words before it, or after it, are written"
    return [StoryTable(headers=headers, rows=rows, text_columns=[3, 4], caption=caption)]


def _change(value: float) -> str:
    return f"{value:.3f}" if value else "no change"


def _sensitivity(models: Models) -> dict[str, tuple[float, float]]:
    """1 - cosine of the vector after a change on the left, and after one on the right; 0 if it is the same."""
    import numpy as np

    from regard.interpret.embeddings import cosine_similarity

    texts = (BASE, OTHER_LEFT, OTHER_RIGHT)
    top = _vectors(models, ELMO, "stick", texts)
    forward, backward = np.split(top, 2, axis=1)
    kinds = {
        "word2vec, GloVe; ELMo's layer 0": _vectors(models, ELMO, "stick", texts, "0"),
        "ELMo, forward half": forward,
        "ELMo, backward half": backward,
        "ELMo": top,
        "GPT": _vectors(models, GPT, "stick", texts),
        "BERT": _vectors(models, BERT, "stick", texts),
    }
    found = {}
    for name, vectors in kinds.items():
        cosines = cosine_similarity(vectors)[0]
        left, right = (float(1 - cosines[number]) for number in (1, 2))
        found[name] = (left if left > CHANGED else 0.0, right if right > CHANGED else 0.0)
    return found


def _answer_static(models: Models) -> ExerciseAnswer:
    cosine = _cosines(models, "stick", STICK)["static"].min()
    return ExerciseAnswer(
        0 if cosine > 1 - CHANGED else 1,
        f"The smallest cosine between the static vectors of “stick” in the four sentences is {cosine:.3f}: a table of "
        "vectors has one row per word, whatever stands around it.",
    )


def _answer_pair(models: Models) -> ExerciseAnswer:
    matrix = _cosines(models, "stick", STICK)["BERT"]
    pairs = ((0, 1), (0, 2), (1, 3))
    values = [float(matrix[pair]) for pair in pairs]
    return ExerciseAnswer(
        values.index(max(values)),
        "BERT's cosines are "
        + ", ".join(f"{value:.3f} for {a + 1} and {b + 1}" for value, (a, b) in zip(values, pairs, strict=True))
        + ". The model was never told that “stick” has two senses.",
    )


def _answer_next(models: Models) -> ExerciseAnswer:
    from regard.inference.next_token import predict_next_token

    words = ("the", "improvisation", "aardvark")
    with models.use(ELMO) as loaded:
        found = predict_next_token(loaded.model, loaded.tokenizer, PROMPT, targets=words).targets
    assert found is not None
    return ExerciseAnswer(
        words.index(max(found, key=found.__getitem__)),
        "; ".join(f"P({word}) = {probability:.2e}" for word, probability in found.items())
        + ". The slides print 10% for “Improvisation” in their drawing of BERT's blank; short, frequent words "
        "win in any model that was trained on running text.",
    )


def _answer_forward(models: Models) -> ExerciseAnswer:
    left, right = _sensitivity(models)["ELMo, forward half"]
    return ExerciseAnswer(
        0 if left and not right else 1 if right and not left else 2,
        f"Other words before it turn the forward half by {_change(left)}; other words after it: {_change(right)}. It "
        "has to be so: the forward half is trained to predict the next word, which it must not have seen.",
    )


def _answer_gpt(models: Models) -> ExerciseAnswer:
    sensitivity = _sensitivity(models)
    still = [not sensitivity[name][1] for name in ("GPT", "BERT", "ELMo")]
    return ExerciseAnswer(
        still.index(True),
        "After a change on the right: "
        + "; ".join(f"{name}: {_change(sensitivity[name][1])}" for name in ("GPT", "BERT", "ELMo"))
        + ". GPT reads from left to right only.",
    )


CHAPTER = Chapter(
    name="elmo",
    title="ELMo: vectors that depend on the context",
    summary="word2vec and GloVe give a word one vector; a bidirectional LSTM gives it one for every sentence.",
    parts=(
        Prose(
            "He took a train. He likes to train in the mornings. Models such as word2vec and GloVe learn one vector "
            "for each word of the vocabulary, so both sentences get the same vector for `train`. But a word can mean "
            "different things in different sentences, and a translator or a tagger has to tell them apart.\n\n"
            "ELMo (2018) reads the whole sentence before it gives a word its vector. Below are the vectors of `stick` "
            "in four sentences: of a static table, of ELMo and of BERT. The static vectors are ELMo's own embeddings, "
            "which are learned like those of word2vec: one row per token.",
            heading="One word, several meanings",
            spec=("C1",),
        ),
        Computed("stick", "“stick” in four sentences", _stick, spec=("C1",)),
        Exercise(
            "static",
            "How many different vectors does a static table give “stick” in the four sentences?",
            ("one", "two: one per meaning", "four"),
            _answer_static,
            spec=("C1",),
        ),
        Exercise(
            "closest-pair",
            "Which two sentences have the most similar vectors of “stick” in BERT?",
            ("1 and 2, both verbs", "1 and 3, a verb and a noun", "2 and 4, a verb and a noun"),
            _answer_pair,
            spec=("C1",),
        ),
        LiveView(
            "stick-view",
            "senses",
            {"word": "stick", "texts": list(STICK), "model": [ELMO]},
            title="The same vectors layer by layer",
            spec=("C1",),
        ),
        Computed("homonyms", "The lectures' other words", _homonyms, spec=("C1",)),
        Prose(
            "ELMo is trained as a language model: it predicts the next word of running text, which needs no labels. A "
            "second one reads from right to left and predicts the previous word. Both are stacks of LSTMs; every layer "
            "gives a vector for every word.",
            heading="Two language models",
            spec=("C2",),
        ),
        Computed("architecture", "Stacked LSTMs in both directions", _architecture, spec=("C2",)),
        Computed("next-word", "What follows “Let's stick to”?", _next_words, spec=("C2", "C4")),
        Exercise(
            "likeliest",
            "Which of these words does ELMo find the most probable after “Let's stick to”?",
            ("the", "improvisation", "aardvark"),
            _answer_next,
            spec=("C4",),
        ),
        CodeBlock(
            "next-token",
            'regard next-token "Let\'s stick to" --model regard-elmo --targets improvisation,aardvark',
            language="shell",
            title="The next and the previous token",
            spec=("C4",),
        ),
        *LAYER_PARTS,
        Prose(
            "The lectures sort embeddings twice: context-free or contextual, and the contextual ones by direction. It "
            "can be measured: write other words before `stick`, or after it, and see whether its vector changes.",
            heading="A small taxonomy",
            spec=("C6",),
        ),
        Computed("taxonomy", "Which words a vector depends on", _taxonomy, spec=("C6",)),
        Exercise(
            "forward-half",
            "What does the forward half of ELMo's vector of “stick” depend on?",
            ("the words before it", "the words after it", "both"),
            _answer_forward,
            spec=("C2", "C6"),
        ),
        Exercise(
            "blind-on-the-right",
            "The words after “stick” are changed. Which model gives it the same vector as before?",
            ("GPT", "BERT", "ELMo"),
            _answer_gpt,
            spec=("C6",),
        ),
    ),
    reading=("peters2018", "howard2018", "mikolov2013", "pennington2014", "alammar2018bert"),
)
