"""Parts of the chapter on GPT: the decoder, the probability of a text, and how tasks become token sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import DeckRow, ExerciseAnswer, beside_deck
from regard.render.story import Diagram, DiagramArrow, DiagramBox, NumberMatrix, Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel
    from regard.inference.causal_lm import CausalScorer

MODEL = "regard-gpt"
ENCODER = "regard-bert"
LAW = "A robot may not injure a human being or, through inaction, allow a human being to come to harm."
ORDERED, SCRAMBLED = "The dog chased the cat.", "The chased cat dog the."
PREMISE, HYPOTHESIS = "A man is playing a guitar.", "A man is making music."
STORY, ENDINGS = "She opened the umbrella because", ("it was raining.", "the soup was cold.", "he sang.", "of Tuesday.")
BANKS = ("They sat on the grass of the river bank", "The company lent money and was the largest bank")
REVIEW = "A charming and often affecting journey."


def architecture(models: Models) -> list[StoryBlock]:
    with models.use(MODEL) as loaded:
        config: Any = loaded.model.config
        parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
        kinds = {name.rpartition(".")[2] for name, _ in loaded.model.named_modules()}
        ahead = _weight_ahead(loaded, LAW)
    rows = [
        DeckRow(
            "decoder layers", "12", str(config.num_hidden_layers), "the deck's OpenAI Transformer; ours is smaller"
        ),
        DeckRow("encoder-decoder attention", "removed", "none" if "cross" not in kinds else "present"),
        DeckRow("attention to later tokens", "masked", f"{ahead:.1f}", f"summed over all maps of {LAW[:30]!r}..."),
        DeckRow("heads", "-", str(config.num_attention_heads)),
        DeckRow("width", "-", str(config.hidden_size)),
        DeckRow("vocabulary", "-", f"{config.vocab_size:,}"),
        DeckRow("positions", "-", str(config.max_position_embeddings)),
        DeckRow("parameters", "-", f"{parameters:,}"),
    ]
    return [beside_deck(rows)]


def _weight_ahead(loaded: LoadedModel, text: str) -> float:
    """The attention weight above the diagonal, summed over all layers, heads and tokens."""
    import numpy as np

    from regard.interpret.attention.recording import record_attention

    maps = record_attention(loaded.model, loaded.tokenizer, text).maps[0].weights
    return float(np.triu(np.asarray(maps, dtype=np.float64), 1).sum())


def mask_answer(models: Models) -> ExerciseAnswer:
    import numpy as np

    from regard.interpret.attention.recording import record_attention

    counts = {}
    for name in (MODEL, ENCODER):
        with models.use(name) as loaded:
            maps = np.asarray(record_attention(loaded.model, loaded.tokenizer, ORDERED).maps[0].weights)
        counts[name] = (maps.shape[-1], int((maps[0, 0] > 0).sum()))
    (length, causal), (other, full) = counts[MODEL], counts[ENCODER]
    return ExerciseAnswer(
        1,
        f"{MODEL} reads {length} tokens and {causal} of its {length * length} weights are above 0: {length} x "
        f"{length + 1} / 2. {ENCODER} reads {other} tokens with [CLS] and [SEP], and all {full} of {other * other} "
        "are.",
    )


def scorer(models: Models, text: str) -> list[tuple[str, float]]:
    """Each token of a text with its log-probability given those before it."""
    from regard.inference.causal_lm import CausalScorer
    from regard.inference.generation.text_generator import token_text
    from regard.nn.training import evaluation_mode

    with models.use(MODEL) as loaded:
        scores = CausalScorer.of(loaded.model, loaded.tokenizer, doing="a chapter")
        with evaluation_mode(loaded.model):
            ids = [*scores.opening, *scores.tokenizer.encode(text, add_special_tokens=False).ids]
            values = _token_scores(scores, ids)
        first = len(scores.opening) or 1
        names = [token_text(scores.tokenizer, number) for number in ids[first:]]
    return list(zip(names, values, strict=True))


def _token_scores(scores: CausalScorer, ids: Sequence[int]) -> list[float]:
    from regard.inference.causal_lm import ScoredIds

    rows = [ScoredIds(ids[: end + 1], end) for end in range(1, len(ids))]
    return [one.log_probability for one in scores.score(rows, greedy=False)]


def sequence_probability(models: Models) -> list[StoryBlock]:
    found = scorer(models, LAW)
    total, rows = 0.0, []
    for number, (token, value) in enumerate(found):
        total += value
        rows.append((f"W{number}", token, f"{math.exp(value):.4f}", f"{value:.2f}", f"{total:.2f}"))
    return [
        StoryTable(
            headers=("", "token", "p given those before", "log p", "sum of logs"),
            rows=rows,
            text_columns=[1],
            caption=LAW,
        ),
        Paragraph(
            text=f"p(W0, ..., W{len(found) - 1}) is the product, e to the {total:.2f} = {math.exp(total):.2e}; per "
            "token "
            f"the perplexity is {math.exp(-total / len(found)):.1f}."
        ),
    ]


def order_answer(models: Models) -> ExerciseAnswer:
    sums = [sum(value for _, value in scorer(models, text)) for text in (ORDERED, SCRAMBLED)]
    factor = sums[0] - sums[1]
    return ExerciseAnswer(
        0 if factor > 0 else 1,
        f"log p is {sums[0]:.1f} for {ORDERED!r} and {sums[1]:.1f} for {SCRAMBLED!r}: the first is e to the "
        f"{factor:.1f} times likelier. The words are the same; a language model scores their order too.",
    )


def transformations() -> list[tuple[str, list[list[str]]]]:
    """The four tasks of GPT's paper, each with the sequences that the model reads; texts are in parts."""
    return [
        ("classification", [["Start", REVIEW, "Extract"]]),
        ("entailment", [["Start", PREMISE, "Delim", HYPOTHESIS, "Extract"]]),
        (
            "similarity",
            [
                ["Start", PREMISE, "Delim", HYPOTHESIS, "Extract"],
                ["Start", HYPOTHESIS, "Delim", PREMISE, "Extract"],
            ],
        ),
        ("multiple choice", [["Start", STORY, "Delim", ending, "Extract"] for ending in ENDINGS]),
    ]


SPECIAL = ("Start", "Delim", "Extract")
STEP = 0.58  # columns of the drawing from box to box
SHORT = {PREMISE: "text 1", HYPOTHESIS: "text 2", REVIEW: "text", STORY: "context"}


def transformations_drawn(models: Models) -> list[StoryBlock]:
    """The figure of GPT's paper: what is read, how often the model runs, and what the linear layer gets."""
    boxes: list[DiagramBox] = []
    arrows: list[DiagramArrow] = []
    row = 0
    for task, sequences in transformations():
        ends = []
        for number, parts in enumerate(sequences):
            key = f"{task}-{number}"
            for column, part in enumerate(parts):
                text = SHORT.get(part, f"answer {number + 1}") if part not in SPECIAL else part
                place = 5 if part == "Extract" else column
                left, strong = 1 + STEP * place, part in SPECIAL
                boxes.append(
                    DiagramBox(key=f"{key}-{column}", text=text, column=left, row=row, width=0.55, strong=strong)
                )
            boxes.append(DiagramBox(key=f"{key}-model", text="Transformer", column=4.5, row=row, width=0.8))
            arrows.append(DiagramArrow(start=f"{key}-{len(parts) - 1}", end=f"{key}-model"))
            ends.append(f"{key}-model")
            row += 1
        middle = row - (len(sequences) + 1) / 2
        boxes.append(DiagramBox(key=f"{task}-name", text=task, column=0, row=middle, width=0.95))
        head = {"similarity": "sum, Linear", "multiple choice": "Linear each, softmax"}.get(task, "Linear")
        boxes.append(DiagramBox(key=f"{task}-head", text=head, column=5.6, row=middle, width=1.2, strong=True))
        arrows += [DiagramArrow(start=end, end=f"{task}-head") for end in ends]
    return [Diagram(title="Input transformations: what is read for each task", boxes=boxes, arrows=arrows)]


def token_rows(models: Models) -> list[StoryBlock]:
    """The same sequences as the tokens that regard-gpt reads, made by the code of `regard train`."""
    rows = []
    for task, sequences in _built_sequences(models):
        for tokens in sequences:
            rows.append((task, str(len(tokens)), " ".join(tokens)))
    return [
        StoryTable(
            headers=("task", "tokens", "what regard-gpt reads"),
            rows=rows,
            text_columns=[2],
            caption="Token rows; · begins a word",
        ),
        Paragraph(
            text="GPT's paper adds three new tokens, Start, Delim and Extract, and learns their embeddings during "
            "fine-tuning. "
            "regard-gpt reuses its end-of-text token for all three, so it needs no new embeddings; the class is read "
            "from "
            "the state of the last token, which is the only one that has read everything."
        ),
    ]


def _built_sequences(models: Models) -> list[tuple[str, list[list[str]]]]:
    from regard.inference.generation.text_generator import token_text
    from regard.models.family import family_name
    from regard.tasks.inputs import InputBuilder

    with models.use(MODEL) as loaded:
        tokenizer = loaded.tokenizer
        assert tokenizer is not None
        builder = InputBuilder(tokenizer, family=family_name(loaded.model), max_length=64)
        found = []
        for task, sequences in transformations():
            texts = [(parts[1], parts[3] if len(parts) > 3 else None) for parts in sequences]
            rows = [
                [token_text(tokenizer, number).replace(" ", "·") for number in one.ids]
                for one in builder.sequences(texts)
            ]
            found.append((task, rows))
    return found


def passes_answer(models: Models) -> ExerciseAnswer:
    counts = {task: len(rows) for task, rows in _built_sequences(models)}
    listed = ", ".join(f"{task} {count}" for task, count in counts.items())
    return ExerciseAnswer(
        (1, 2, 4).index(counts["similarity"]),
        f"Sequences that the model reads for one example: {listed}. Similarity has no first and second text, so both "
        "orders are read and their last states added.",
    )


def parallel(models: Models) -> list[StoryBlock]:
    """One pass over all tokens gives the same predictions as one token at a time with a cache."""
    import torch

    from regard.inference.generation.decoder import as_decoder
    from regard.nn.masks import Padded
    from regard.nn.training import evaluation_mode

    with models.use(MODEL) as loaded:
        model: Any = loaded.model
        assert loaded.tokenizer is not None
        ids = torch.tensor([loaded.tokenizer.encode(LAW, add_special_tokens=False).ids])
        with evaluation_mode(model):
            together = model.logits(model(ids, Padded()))[0].float()
            logits, state = as_decoder(model).start(ids[:, :1])
            steps = [logits[0]]
            for token in ids[0, 1:]:
                logits, state = as_decoder(model).step(token[None], state)
                steps.append(logits[0])
            apart = (together - torch.stack(steps).float()).abs().max().item()
            rows = [loaded.tokenizer.encode(text, add_special_tokens=False).ids for text in BANKS]
            vectors = [model(torch.tensor([row]), Padded())[0, -1].float() for row in rows]
    cosine = torch.nn.functional.cosine_similarity(vectors[0], vectors[1], dim=0).item()
    return [
        StoryTable(
            headers=("characteristic", "seen in regard-gpt"),
            rows=[
                ("attention", f"{len(ids[0])} tokens attend to each other in every layer; no recurrence"),
                (
                    "context-dependent embeddings",
                    f'"bank" at the end of "{BANKS[0]}" and of "{BANKS[1]}" is one row of the embedding table; the '
                    f"cosine of its two vectors after the last layer is {cosine:.2f}",
                ),
                (
                    "multitask training",
                    "one model, trained on unlabeled text alone, gets all benchmarks of the table above",
                ),
                (
                    "parallel processing",
                    f"all {len(ids[0])} tokens in 1 pass; {len(ids[0])} passes, one token at a time, give the same "
                    "logits "
                    f"within {apart:.0e}",
                ),
            ],
            text_columns=[1],
        )
    ]


def mask_drawn(models: Models) -> list[StoryBlock]:
    """One head of each model on the same words: full and masked."""
    import numpy as np

    from regard.interpret.attention.recording import record_attention

    blocks: list[StoryBlock] = []
    for name, title in ((ENCODER, "Self-attention (BERT)"), (MODEL, "Masked self-attention (GPT)")):
        with models.use(name) as loaded:
            found = record_attention(loaded.model, loaded.tokenizer, ORDERED).maps[0]
        weights = np.asarray(found.weights)[0].mean(0)
        blocks.append(
            NumberMatrix(
                title=f"{title}: {name}, layer 1, mean of all heads",
                values=weights.tolist(),
                rows=[token.strip() for token in found.rows.tokens],
                columns=[token.strip() for token in found.columns.tokens],
            )
        )
    return blocks
