"""The worked examples of the chapter on the Transformer, computed with the built-in models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import DeckRow, beside_deck
from regard.render.story import HeatMap, NumberMatrix, Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from torch import Tensor

    from regard.interpret.figure.figure import Figure
    from regard.interpret.translation import TranslationSteps

STUDENT = "Je suis étudiant"
MARKET = "Ich muss auf den Markt gehen."
TRANSLATOR, ENCODER = "regard-fr-en", "regard-bert"
NUM_FIRST = 6  # numbers of a wide vector that are shown
WIDTH, COUNT = 128, 50  # of the positional encodings that the deck draws
FAR = 10_000  # a position beyond every training sentence


def figure_for(models: Models, text: str, name: str = TRANSLATOR, *, ablation: bool = False) -> Figure:
    from regard.interpret.figure.figure import figure_of

    with models.use(name) as loaded:
        return figure_of(loaded, text, ablation=ablation)


@contextmanager
def use_network(models: Models, name: str) -> Iterator[Any]:
    with models.use(name) as loaded:
        yield loaded.model


def _difference(a: Tensor, b: Tensor) -> str:
    return f"{float((a - b).abs().max()):.1e}"


def sizes(models: Models) -> list[StoryBlock]:
    """The base model of the paper, counted, beside a built-in translator."""
    import torch

    from regard.interpret.figure.figure_model import default_figure_model
    from regard.models.bert import BertConfig
    from regard.models.family import build, known_checkpoints
    from regard.models.transformer import TransformerConfig

    base, name = TransformerConfig(), default_figure_model()
    with torch.device("meta"):  # counts parameters without memory for them
        parameters = sum(one.numel() for one in build(base).parameters())
    with use_network(models, name) as model:
        ours = model.config
        own = sum(one.numel() for one in model.parameters())
    large = next(one for one in known_checkpoints() if one.name.endswith("bert-large-uncased"))
    rows = [
        DeckRow("width of the embeddings", str(base.hidden_size), str(ours.hidden_size), f"ours is {name}"),
        DeckRow("encoders, and as many decoders", str(base.num_hidden_layers), str(ours.num_hidden_layers)),
        DeckRow("heads", str(base.num_attention_heads), str(ours.num_attention_heads)),
        DeckRow("inner layer of the feed-forward network", str(base.intermediate_size), str(ours.intermediate_size)),
        DeckRow("parameters", "", f"{own / 1e6:.1f} million", f"the deck's sizes make {parameters / 1e6:.1f} million"),
        DeckRow(
            "BERT's feed-forward network",
            "768 or 1024",
            f"{BertConfig().intermediate_size} or {large.shape['intermediate_size']}",
            "the deck's numbers are the width of the model",
            "P12",
        ),
    ]
    return [beside_deck(rows)]


def variants(models: Models) -> list[StoryBlock]:
    """The families that Regard has, from the first Transformer on."""
    from regard.models.family import families

    listed = sorted(
        (one for one in families().values() if one.year >= 2017 and not one.can("recurrent")), key=lambda one: one.year
    )
    parts = {one.name: " and ".join(stack.replace("_", " ") for stack in one.stacks) or "neither" for one in listed}
    rows = [(one.name, str(one.year), parts[one.name], one.description) for one in listed]
    return [StoryTable(headers=("family", "year", "stacks", "what it is"), rows=rows, text_columns=[2, 3])]


def one_hot(models: Models) -> list[StoryBlock]:
    """A one-hot vector times the embedding matrix is a row of that matrix."""
    import torch

    from regard.inference.translation.translator import translator_of

    with models.use(TRANSLATOR) as loaded:
        translator = translator_of(loaded)
    matrix: Tensor = translator.model.embedding.tokens.weight.detach()
    token_id = translator.subwords.encode_sources([STUDENT])[0][2]
    token = translator.subwords.source.decode([token_id]).strip()
    vector = torch.zeros(len(matrix))
    vector[token_id] = 1
    product = vector @ matrix
    return [
        Paragraph(
            text=f"{TRANSLATOR} knows {len(matrix):,} tokens; “{token}” is number {token_id:,}. Its one-hot vector "
            f"has {len(matrix):,} numbers, all 0 but one. Multiplied by the {len(matrix):,} x {matrix.shape[1]} "
            "matrix W^E it gives one row of that matrix, so a program looks the row up instead."
        ),
        NumberMatrix(
            title=f"The first numbers of e for “{token}”",
            values=[product[:NUM_FIRST].tolist(), matrix[token_id, :NUM_FIRST].tolist()],
            rows=["one-hot times W^E", f"row {token_id} of W^E"],
            columns=[str(index) for index in range(NUM_FIRST)],
            digits=3,
        ),
    ]


def five_criteria(models: Models) -> list[StoryBlock]:
    """The deck's five criteria for positional encodings, measured for the sinusoids."""
    import torch

    from regard.nn.embedding import sinusoids

    positions = torch.arange(COUNT)
    p = sinusoids(positions, WIDTH).double()
    distances = torch.cdist(p, p)
    nearest = float((distances + torch.eye(COUNT) * 1e9).min())
    spread = max(float(distances.diagonal(shift).max() - distances.diagonal(shift).min()) for shift in range(1, COUNT))
    far = sinusoids(torch.tensor([FAR, FAR + 1]), WIDTH).double()
    step = float((far[0] - far[1]).norm())
    equal = bool(torch.equal(sinusoids(positions, WIDTH), sinusoids(positions, WIDTH)))
    rows = [
        ("unique for each position", f"nearest two of {COUNT} positions differ by {nearest:.3f}"),
        ("consistent distances", f"distance of neighbors: {distances[0, 1]:.3f} everywhere, up to {spread:.1e}"),
        ("longer sequences", f"positions {FAR:,} and {FAR + 1:,} exist too, at distance {step:.3f}"),
        ("bounded", f"all values lie between {float(p.min()):.3f} and {float(p.max()):.3f}"),
        ("deterministic", f"computed twice, equal: {'yes' if equal else 'no'}"),
    ]
    k = torch.arange(WIDTH // 2)
    frequencies = 10000.0 ** (-2 * k / WIDTH)
    halves = sinusoids(positions, WIDTH, arrangement="halves").double()
    permuted = torch.cat([p[:, 0::2], p[:, 1::2]], dim=1)
    with use_network(models, TRANSLATOR) as model:
        embedded = model.embedding.tokens.weight.shape[1]
    return [
        StoryTable(
            headers=("criterion", f"sinusoids, {WIDTH} wide"),
            rows=rows,
            text_columns=[1],
            caption="The five criteria, measured",
        ),
        beside_deck(
            [
                DeckRow(
                    "first frequency", "w_1 in the vector, w_0 in the formula", f"w_0 = {frequencies[0]:g}", "", "P4"
                ),
                DeckRow("last frequency", "w_(d/2)", f"w_{WIDTH // 2 - 1} = {frequencies[-1]:.2e}", "", "P4"),
                DeckRow(
                    "layout",
                    "interleaved (S2), in halves (S4)",
                    _difference(halves, permuted),
                    "largest difference after a permutation of the columns",
                    "P5",
                ),
                DeckRow(
                    "width of embedding and encoding",
                    "equal, so that they can be added",
                    f"{embedded} and {sinusoids(positions, embedded).shape[1]}",
                    TRANSLATOR,
                ),
            ]
        ),
    ]


def layer_norm(models: Models) -> list[StoryBlock]:
    """Layer norm on one row, step by step, and what it does not depend on."""
    import torch

    figure = figure_for(models, "The car is blue", ENCODER)
    one = figure.box("encoder.attention_residual").in_layer(1)
    total, out = one["total"], one["out"]
    with use_network(models, ENCODER) as model:
        norm = model.encoder.layers[0].attention_residual.norm
        gain, bias = norm.weight.detach(), norm.bias.detach()
        with torch.inference_mode():
            alone = norm(total[2:3])
            test = norm(total)
            norm.train()
            training = norm(total)
            norm.eval()
    row, token = total[2], figure.tokens["encoder"][2]
    mean, deviation = row.mean(), row.var(correction=0).add(norm.eps).sqrt()
    normalized = (row - mean) / deviation
    values = [row, normalized, gain, bias, normalized * gain + bias]
    return [
        Paragraph(
            text=f"The vector of “{token}” in {ENCODER} after its first attention was added: {len(row)} numbers with "
            f"mean {mean:.4f} and standard deviation {deviation:.4f}. The norm subtracts the one and divides by the "
            "other, then each dimension has its own learned gain and bias."
        ),
        NumberMatrix(
            title="The first numbers",
            values=[one[:NUM_FIRST].tolist() for one in values],
            rows=["x + sublayer", "normalized", "gain", "bias", "result"],
            columns=[str(index) for index in range(NUM_FIRST)],
            digits=3,
        ),
        beside_deck(
            [
                DeckRow("mean after normalizing", "0", f"{abs(float(normalized.mean())):.4f}"),
                DeckRow("standard deviation", "1", f"{normalized.std(correction=0):.4f}"),
                DeckRow(
                    "gain and bias", "none (S2), per neuron (S4)", f"{len(gain)} and {len(bias)} numbers", "", "P6"
                ),
                DeckRow("epsilon under the root", "none", f"{norm.eps:g}", "against a division by 0", "P6"),
                DeckRow("result against the model's own", "", _difference(values[-1], out[2]), "largest difference"),
                DeckRow(
                    "training against test",
                    "exactly the same",
                    _difference(training, test),
                    "difference",
                ),
                DeckRow("one example alone against all", "own statistics", _difference(alone[0], out[2]), "difference"),
            ]
        ),
    ]


def feed_forward(models: Models) -> list[StoryBlock]:
    """The same network at every position: row by row, and in another order."""
    import torch

    figure = figure_for(models, STUDENT)
    one = figure.box("encoder.ffn").in_layer(1)
    x, hidden, out = one["x"], one["hidden"], one["out"]
    with use_network(models, TRANSLATOR) as model, torch.inference_mode():
        network = model.encoder.layers[0].ffn
        alone = torch.cat([network(row[None]) for row in x])
        flipped = network(x.flip(0)).flip(0)
    changed = x.clone()
    changed[0] = 0
    with use_network(models, TRANSLATOR) as model, torch.inference_mode():
        others = model.encoder.layers[0].ffn(changed)[1:]
    shapes = " to ".join(str(size) for size in (x.shape[1], hidden.shape[1], out.shape[1]))
    return [
        beside_deck(
            [
                DeckRow("widths", "512 to 2048 to 512", shapes, TRANSLATOR),
                DeckRow(
                    "activation",
                    "ReLU",
                    "ReLU",
                    f"{float((hidden == 0).float().mean()):.0%} of the inner numbers are 0",
                ),
                DeckRow("each position alone", "independent", _difference(alone, out), "difference from all at once"),
                DeckRow("positions in reverse order", "same network", _difference(flipped, out), "difference"),
                DeckRow(
                    "first position replaced by 0", "no effect on others", _difference(others, out[1:]), "difference"
                ),
            ]
        )
    ]


def stack(models: Models) -> list[StoryBlock]:
    """The layers share their structure, not their weights, and their number does not depend on the length."""
    import torch

    with use_network(models, TRANSLATOR) as model:
        layers = model.encoder.layers
        first, second = (one.ffn.inner.weight.detach().flatten() for one in layers[:2])
        counts = [sum(parameter.numel() for parameter in one.parameters()) for one in layers]
        cosine = float(torch.nn.functional.cosine_similarity(first, second, dim=0))
    lengths = [
        figure_for(models, text) for text in (STUDENT, "Je suis étudiant, et ma sœur travaille dans une banque.")
    ]
    passes = [(len(one.tokens["encoder"]), len(one.box("encoder.ffn").passes)) for one in lengths]
    return [
        beside_deck(
            [
                DeckRow("encoders", "6", str(len(layers)), TRANSLATOR),
                DeckRow(
                    "structure", "identical", f"{counts[0]:,} parameters each" if len(set(counts)) == 1 else "differs"
                ),
                DeckRow(
                    "weights", "not shared", f"cosine {cosine:.3f}", "first feed-forward matrices of layers 1 and 2"
                ),
                *(
                    DeckRow(f"layers for {tokens} tokens", "independent of the length", str(count))
                    for tokens, count in passes
                ),
            ]
        )
    ]


def top_of_the_encoder(models: Models) -> list[StoryBlock]:
    """All decoder layers read the same encoder output, and make their own keys and values of it."""
    figure = figure_for(models, STUDENT)
    norm = [box for box in figure.model_boxes if box.name == "encoder.final_norm"]
    top = norm[0].passes[-1]["out"] if norm else figure.box("encoder.ffn_residual").passes[-1]["out"]
    cross = figure.box("decoder.cross").passes
    rows = [
        (
            str(number),
            _difference(one["memory"], top),
            ", ".join(f"{value:.2f}" for value in one["k"][0, 0, :3]),
            ", ".join(f"{value:.2f}" for value in one["v"][0, 0, :3]),
            ", ".join(f"{value:.2f}" for value in one["q"][0, 0, :3]),
        )
        for number, one in enumerate(cross, 1)
    ]
    return [
        StoryTable(
            headers=(
                "decoder layer",
                "its input against the encoder's top",
                "k of “Je”",
                "v of “Je”",
                "q of the decoder",
            ),
            rows=rows,
            caption=f"{TRANSLATOR}, “{STUDENT}”: head 0, first token, first three numbers",
        ),
        Paragraph(
            text="Every layer reads the same matrix, the output of the last encoder layer. Keys and values still "
            "differ, since each layer has its own W^K and W^V. The queries come from the decoder sublayer below."
        ),
    ]


def _steps(models: Models) -> TranslationSteps:
    from regard.inference.translation.translator import translator_of
    from regard.interpret.translation import translate_in_steps

    with models.use(TRANSLATOR) as loaded:
        return translate_in_steps(translator_of(loaded), STUDENT, name=TRANSLATOR)


def decoding_loop(models: Models) -> list[StoryBlock]:
    """The time steps of a translation: what the decoder has read, and what it says next."""
    result = _steps(models)
    steps = result.hypotheses[0].steps
    deck = ("I", "am", "a", "student", "<end of sentence>")
    read = ["begin"]
    rows = []
    for number, step in enumerate(steps, 1):
        token = "<end of sentence>" if step.token == "<|endoftext|>" else step.token.strip()
        expected = deck[number - 1] if number <= len(deck) else ""
        rows.append((str(number), " ".join(read), expected, token, f"{step.probability:.1%}"))
        read.append(token)
    return [
        StoryTable(
            headers=("time step", "decoder input", "deck's output", "our output", "probability"),
            rows=rows,
            text_columns=[1, 2, 3],
            caption=f"{TRANSLATOR} translates “{result.text}”",
        ),
        Paragraph(
            text="Each output is embedded, gets the encoding of its position and becomes an input of the next step. "
            f"Our model was trained on sentences with punctuation: it says “{result.hypotheses[0].text}”. The deck "
            "counts six steps and fills five of them."
        ),
    ]


def final_layer(models: Models) -> list[StoryBlock]:
    """Logits, softmax and argmax of the first time step."""
    figure = figure_for(models, STUDENT)
    logits = figure.box("decoder.softmax").passes[0]["logits"][0]
    probabilities = figure.box("decoder.softmax").passes[0]["out"][0]
    best = probabilities.topk(5).indices.tolist()
    words = [figure.figure_model.token_text(index).strip() for index in best]
    rows = [
        (word, str(index), f"{logits[index]:.2f}", f"{probabilities[index]:.2%}")
        for word, index in zip(words, best, strict=True)
    ]
    return [
        Paragraph(
            text=f"The decoder's vector has {figure.architecture.width} numbers. The linear layer makes "
            f"{len(logits):,} logits of it, one for each token of the vocabulary, the softmax makes probabilities "
            f"that sum to {float(probabilities.sum()):.3f}, and the argmax is the index "
            f"{int(probabilities.argmax())}: “{words[0]}”."
        ),
        StoryTable(
            headers=("token", "index", "logit", "probability"), rows=rows, caption="The five most probable tokens"
        ),
    ]


def one_hot_target(models: Models) -> list[StoryBlock]:
    """The deck's vocabulary of six words and the one-hot target of "am"."""
    import math

    from regard.lessons.six_words import PAIRS, TARGET_WORDS

    target = [1.0 if word == "am" else 0.0 for word in TARGET_WORDS]
    outputs = sum(len(words.split()) for _, words in PAIRS)
    return [
        StoryTable(
            headers=("word", *TARGET_WORDS),
            rows=[
                ("index", *(str(index) for index in range(len(TARGET_WORDS)))),
                ("target", *(f"{value:.1f}" for value in target)),
            ],
            caption="The vocabulary, and the one-hot encoding of “am”",
        ),
        Paragraph(
            text="With a one-hot target, cross-entropy is -ln of the probability of the right word. A model that "
            f"knows nothing gives each of the six words 1/6, so each output costs ln 6 = {math.log(6):.3f}, and the "
            f"{outputs} outputs of both sentences together {outputs * math.log(6):.2f}. The deck sums over the "
            "outputs, and so do we."
        ),
    ]


def six_words(models: Models) -> list[StoryBlock]:
    from regard.lessons.six_words import train_six_words

    return list(train_six_words().story().blocks)


def residual_lengths(models: Models) -> list[StoryBlock]:
    """The share of each sublayer in the residual stream, over the tokens of a sentence."""
    from regard.interpret.figure.figure_model import default_figure_model

    figure = figure_for(models, MARKET, default_figure_model())
    rows = []
    for part in ("encoder", "decoder"):
        for layer in (1, 2):
            for name, title in (
                ("attention_residual", "self-attention"),
                ("cross_residual", "cross-attention"),
                ("ffn_residual", "feed-forward"),
            ):
                if f"{part}.{name}" in {box.name for box in figure.model_boxes}:
                    one = figure.box(f"{part}.{name}").in_layer(layer)
                    x, update, out = (one[key].norm(dim=-1).mean() for key in ("x", "sublayer", "out"))
                    rows.append((f"{part} {layer}: {title}", f"{x:.2f}", f"{update:.2f}", f"{out:.2f}"))
    return [
        StoryTable(
            headers=("sublayer", "length of x", "length of its output", "length afterwards"),
            rows=rows,
            caption=f"Two layers of {figure.model}, mean over the tokens of “{MARKET}”",
        ),
        Paragraph(text=figure.architecture.norms),
    ]


def removed_parts(models: Models) -> list[StoryBlock]:
    figure = figure_for(models, STUDENT, ablation=True)
    assert figure.ablation is not None
    names = {(): "nothing", ("mask",): "the mask", ("positions",): "the positions", ("scaling",): "the scaling"}
    rows = [
        (names.get(tuple(one.without), "the residuals"), f"{one.sentences_loss:.3f}", one.output)
        for one in figure.ablation.outcomes
    ]
    return [
        StoryTable(
            headers=("removed", "loss of five sentences", f"translation of “{STUDENT}”"), rows=rows, text_columns=[2]
        )
    ]


def cross_map(models: Models) -> list[StoryBlock]:
    result = _steps(models)
    hypothesis = result.hypotheses[0]
    assert hypothesis.attention is not None
    weights = hypothesis.attention.weights[-1].mean(0)
    return [
        HeatMap(
            title="Encoder-decoder attention, last layer, mean of the heads",
            weights=weights.tolist(),
            rows=[_name(token) for token in hypothesis.pieces.tokens],
            columns=[_name(token) for token in result.source.tokens],
            row_title="output",
            column_title="source",
        )
    ]


def _name(token: str) -> str:
    return "end" if token == "<|endoftext|>" else token.strip()
