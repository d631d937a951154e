"""The worked examples of the chapter on self-attention, computed with the built-in models.

The boxes of Figure 1 hold every tensor of a forward pass by its name in the formula: x, q, k, v, scores, weights, z,
concatenated and out. The examples read them there, so each number is one of the model's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import DeckRow, beside_deck
from regard.render.story import FigureRow, HeatMap, NumberMatrix, Paragraph, Section, StoryBlock, StoryTable

if TYPE_CHECKING:
    from torch import Tensor

    from regard.interpret.attention.maps import AttentionMaps
    from regard.interpret.figure.boxes import BoxPass
    from regard.interpret.figure.figure import Figure

THINKING = "Thinking Machines"
CAR = "The car is blue"
ANIMAL = "The animal didn't cross the street because it was too tired"
STUDENT = "Je suis étudiant"
ENCODER, DECODER, TRANSLATOR = "regard-bert", "regard-gpt", "regard-fr-en"
COREFERENCE = DECODER, "regard-embed"  # models with heads that connect "it" with "animal" and with "tired"
NUM_FIRST = 4  # numbers of a wide vector that are shown
HEAD, OTHER_HEAD = 4, 2  # of the worked example "The car is blue"
TINY = 0.001  # the deck's example of a tiny weight


def figure_for(models: Models, name: str, text: str) -> Figure:
    from regard.interpret.figure.figure import figure_of

    with models.use(name) as loaded:
        return figure_of(loaded, text, ablation=False)


def _numbers(
    title: str, values: Tensor, rows: Sequence[str], *, count: int = NUM_FIRST, digits: int = 2
) -> NumberMatrix:
    """The first numbers of each row, under their indices."""
    columns = [str(index) for index in range(min(count, values.shape[-1]))]
    return NumberMatrix(
        title=title, values=values[:, : len(columns)].tolist(), rows=rows, columns=columns, digits=digits
    )


def _map(title: str, weights: Tensor, rows: Sequence[str], columns: Sequence[str] | None = None) -> HeatMap:
    return HeatMap(
        title=title,
        weights=weights.tolist(),
        rows=[row.strip() for row in rows],
        columns=[column.strip() for column in columns or rows],
        row_title="query",
        column_title="key",
    )


def shape_text(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape))


def five_steps(models: Models) -> list[StoryBlock]:
    """Multi-head attention on "Thinking Machines": the five steps of the deck's picture, head by head."""
    figure = figure_for(models, ENCODER, THINKING)
    tokens = figure.tokens["encoder"]
    box = figure.box("encoder.attention")
    one, two = box.in_layer(1), box.in_layer(2)
    heads = range(len(one["q"]))
    output = figure.box("encoder.ffn_residual").in_layer(1)["out"]
    projections = [
        [f"head {head}", *(", ".join(f"{x:.2f}" for x in one[name][head, 1, :3]) for name in "qkv")] for head in heads
    ]
    weights = [_map(f"head {head}", one["weights"][head], tokens) for head in heads]
    averages = [_numbers(f"Z of head {head}", one["z"][head], tokens) for head in heads]
    parts = one["concatenated"].view(len(tokens), len(heads), -1).transpose(0, 1)
    return [
        Section(
            heading="1. The sentence",
            blocks=[Paragraph(text=f"{ENCODER} reads {len(tokens)} tokens: {' '.join(tokens)}.")],
        ),
        Section(
            heading="2. Embed each token: X",
            blocks=[
                Paragraph(text=f"X is {shape_text(one['x'])}: a row for each token. Its first numbers:"),
                _numbers("X", one["x"], tokens),
            ],
        ),
        Section(
            heading=f"3. Split into {len(heads)} heads: Q, K, V",
            blocks=[
                Paragraph(
                    text=f"Each head multiplies X by its own W^Q, W^K and W^V, of {one['x'].shape[-1]} x "
                    f"{one['q'].shape[-1]} numbers, so the queries of a head are {shape_text(one['q'][0])}. The first "
                    f"three numbers of “{tokens[1]}” in each head:"
                ),
                StoryTable(headers=("head", "q", "k", "v"), rows=projections),
            ],
        ),
        Section(
            heading="4. Attention in each head: softmax(QK^T / √d_k) V = Z",
            blocks=[
                Paragraph(
                    text=f"Scores are divided by √{one['q'].shape[-1]} = {one['q'].shape[-1] ** 0.5:g}, and softmax "
                    "turns each row into weights that sum to 1. Every head has its own map:"
                ),
                FigureRow(blocks=weights),
                Paragraph(text="Each row of Z is the weighted average of the rows of V. The first numbers of each:"),
                FigureRow(blocks=averages),
            ],
        ),
        Section(
            heading="5. Concatenate, then multiply by W^O",
            blocks=[
                Paragraph(
                    text=f"{len(heads)} matrices of {shape_text(one['z'][0])} side by side make "
                    f"{shape_text(one['concatenated'])}, and W^O is {' x '.join(map(str, one.parameters['W_o']))}. The "
                    "output of the layer's attention:"
                ),
                _numbers("Z W^O", one["out"], tokens),
                StoryTable(
                    headers=("check", "largest difference"),
                    rows=[
                        ("concatenation against the Z of the heads", f"{float((parts - one['z']).abs().max()):.1e}"),
                        ("these formulas against the model's own output", f"{one.difference:.1e}"),
                        (
                            "input of layer 2 against the output R of layer 1",
                            f"{float((two['x'] - output).abs().max()):.1e}",
                        ),
                    ],
                    caption="Are these the model's numbers?",
                ),
                Paragraph(
                    text="The last line is the footnote of the deck's picture: only the first layer starts from "
                    "embeddings. Every layer above takes R, the output of the layer below, in place of X."
                ),
            ],
        ),
    ]


def dimensions(models: Models) -> list[StoryBlock]:
    with models.use(ENCODER) as loaded:
        config: Any = loaded.model.config
    width, heads = config.hidden_size, config.num_attention_heads
    each = width // heads
    return [
        beside_deck(
            [
                DeckRow("width of an embedding", "512", str(width), f"ours is {ENCODER}"),
                DeckRow("width of q, k and v in a head", "64", str(each)),
                DeckRow("heads", "8", str(heads)),
                DeckRow("scores are divided by", "8", f"{each**0.5:g}", "the square root of the width of a key"),
                DeckRow("width of the concatenation", "64 x 8 = 512", f"{each} x {heads} = {each * heads}"),
            ]
        )
    ]


def car_attention(models: Models) -> tuple[list[str], BoxPass]:
    figure = figure_for(models, ENCODER, CAR)
    return figure.tokens["encoder"], figure.box("encoder.attention").in_layer(1)


def car_is_blue(models: Models) -> list[StoryBlock]:
    """Scores, weights s_ij and output z of "The car is blue" in one head, number by number."""
    import torch.nn.functional as F

    tokens, one = car_attention(models)
    q, k, v, weights = (one[name][HEAD] for name in ("q", "k", "v", "weights"))
    products = q @ k.T
    query = 1
    cosines = F.cosine_similarity(q[query][None], k)
    steps = [
        (
            token,
            f"{cosines[i]:.3f}",
            f"{products[query, i]:.2f}",
            f"{products[query, i] / 8:.3f}",
            f"{weights[query, i]:.4f}",
        )
        for i, token in enumerate(tokens)
    ]
    weighted = weights[query][:, None] * v
    rows = [
        (token, f"{weights[query, i]:.4f}", *(f"{x:.3f}" for x in v[i, :3]), *(f"{x:.3f}" for x in weighted[i, :3]))
        for i, token in enumerate(tokens)
    ]
    total = weighted.sum(0)
    rows.append(("sum: z", f"{weights[query].sum():.4f}", "", "", "", *(f"{x:.3f}" for x in total[:3])))
    tiny = one["weights"] < TINY
    return [
        Paragraph(
            text=f"{ENCODER}, layer 1, head {HEAD}. The model adds [CLS] and [SEP] around the deck's four words. The "
            f"query is “{tokens[query]}”: its product with every key is divided by 8, and softmax makes weights of "
            "the results."
        ),
        StoryTable(
            headers=("key", "cosine of q and k", "q · k", "q · k / 8", "s"),
            rows=steps,
            caption=f"From the query of “{tokens[query]}” to its weights s",
        ),
        FigureRow(
            blocks=[
                _map(f"s_ij for all words, head {HEAD}", weights, tokens),
                _map(f"the same in head {OTHER_HEAD}", one["weights"][OTHER_HEAD], tokens),
            ]
        ),
        Paragraph(
            text=f"Head {HEAD} keeps one word of each row and suppresses the rest. Head {OTHER_HEAD} has other "
            "weights for the same words: there “blue” attends most to "
            f"“{tokens[int(one['weights'][OTHER_HEAD, 4].argmax())]}”."
        ),
        StoryTable(
            headers=("value", "s", "v[0]", "v[1]", "v[2]", "s v[0]", "s v[1]", "s v[2]"),
            rows=rows,
            caption=f"Values times weights, added up: z of “{tokens[query]}”",
        ),
        beside_deck(
            [
                DeckRow("weights of one word sum to", "1", f"{weights[query].sum():.4f}"),
                DeckRow(
                    "a weight that suppresses a word", "0.001", f"{weights.min():.5f}", "the smallest s in this head"
                ),
                DeckRow(
                    "weights below 0.001 in layer 1",
                    "",
                    f"{int(tiny.sum())} of {tiny.numel()}",
                    "all heads; each of these words is practically absent from the sum",
                ),
                DeckRow(
                    "z against the model's own",
                    "",
                    f"{float((total - one['z'][HEAD, query]).abs().max()):.1e}",
                    "largest difference",
                ),
            ]
        ),
    ]


def order(models: Models) -> list[StoryBlock]:
    """The vectors of the same words in another order, with and without positions."""
    import torch
    import torch.nn.functional as F

    plain, shuffled, states = shuffled_states(models)
    rows = []
    for index, word in enumerate(plain):
        pairs = [(a[index], b[shuffled.index(word)]) for a, b in states]
        cells = [
            (f"{float((a - b).abs().max()):.1e}", f"{float(F.cosine_similarity(a, b, dim=0)):.4f}") for a, b in pairs
        ]
        rows.append((word, *cells[0], *cells[1]))
    largest = max(float(row[1]) for row in rows)
    same = torch.finfo(torch.float32).eps * 1e4
    verdict = "the same up to rounding" if largest < same else "not the same"
    return [
        Paragraph(
            text=f"{ENCODER} reads “{' '.join(plain)}” and “{' '.join(shuffled)}”. Each row compares the last vectors "
            "of one word in both orders, first with the position vectors removed, then with the complete model."
        ),
        StoryTable(
            headers=("word", "no positions: difference", "cosine", "with positions: difference", "cosine"), rows=rows
        ),
        Paragraph(text=f"Without positions the vectors are {verdict}: the model reads a set of words, not a sequence."),
    ]


def shuffled_states(models: Models) -> tuple[list[str], list[str], list[tuple[Tensor, Tensor]]]:
    """The words in two orders, and their last vectors in both: without positions, and with them."""
    import torch

    from regard.interpret.figure.ablation import without_components
    from regard.nn.masks import Padded
    from regard.nn.training import evaluation_mode

    words = CAR.lower().split()
    shuffled = words[::-1]
    states = []
    with models.use(ENCODER) as loaded, evaluation_mode(loaded.model):
        ids = [torch.tensor([loaded.tokenizer.encode(" ".join(order)).ids]) for order in (words, shuffled)]
        for removed in (["positions"], []):
            with without_components(loaded.model, removed):
                first, second = (loaded.model(one, Padded())[0, 1:-1] for one in ids)
            states.append((first, second))
    return words, shuffled, states


def _maps(models: Models, name: str, text: str = ANIMAL) -> tuple[list[str], AttentionMaps]:
    """The tokens and all self-attention maps, as `regard look` shows them."""
    from regard.interpret.attention.recording import record_attention

    with models.use(name) as loaded:
        maps = record_attention(loaded.model, loaded.tokenizer, text).maps[0]
    return [token.strip().lstrip("␣") for token in maps.rows.tokens], maps


def strongest_head(models: Models, name: str, word: str) -> tuple[int, int, float]:
    """The layer, the head and the weight with which "it" attends most to a word."""
    import numpy as np

    tokens, maps = _maps(models, name)
    weights = maps.weights[:, :, tokens.index("it"), tokens.index(word)]
    layer, head = np.unravel_index(int(weights.argmax()), weights.shape)
    return int(layer) + 1, int(head), float(weights[layer, head])


def coreference(models: Models) -> list[StoryBlock]:
    """Where "it" attends: one head, two heads, and the mean of all."""
    import torch

    blocks: list[StoryBlock] = []
    decoder, encoder = COREFERENCE
    for name, words in ((decoder, ("animal",)), (encoder, ("animal", "tired"))):
        tokens, maps = _maps(models, name)
        it = tokens.index("it")
        found = [strongest_head(models, name, word) for word in words]
        rows = [maps.weights[layer - 1, head, it] for layer, head, _ in found] + [maps.weights[:, :, it].mean((0, 1))]
        names = [f"layer {layer}, head {head}" for layer, head, _ in found] + [
            f"mean of all {maps.num_layers * maps.num_heads}"
        ]
        descriptions = " and ".join(
            f"layer {layer}, head {head} gives {weight:.0%} of its weight to “{word}”"
            for word, (layer, head, weight) in zip(words, found, strict=True)
        )
        blocks.append(Paragraph(text=f"In {name}, “it” looks different in different heads: {descriptions}."))
        blocks.append(
            HeatMap(
                title=f"Attention of “it” in {name}",
                weights=torch.stack([torch.as_tensor(row) for row in rows]).tolist(),
                rows=names,
                columns=tokens,
                row_title="head",
                column_title="key",
            )
        )
    blocks.append(
        Paragraph(
            text=f"{decoder} is a decoder: when it reads “it”, the word “tired” has not come yet, so no head can "
            f"attend to it. {encoder} reads in both directions, like the encoder in the deck."
        )
    )
    return blocks


def favorite_tokens(models: Models) -> tuple[Counter[str], int]:
    """The word to which each head of the encoder attends most from "it", and the number of heads."""
    tokens, maps = _maps(models, COREFERENCE[1])
    best = maps.weights[:, :, tokens.index("it")].argmax(-1).flatten().tolist()
    return Counter(tokens[index] for index in best), len(best)


def all_heads(models: Models) -> list[StoryBlock]:
    counts, total = favorite_tokens(models)
    rows = [(word, str(count), f"{count / total:.0%}") for word, count in counts.most_common()]
    separators = counts["[SEP]"] + counts["[CLS]"]
    return [
        StoryTable(
            headers=("token with the most weight", "heads", "share"),
            rows=rows,
            caption=f"Where “it” attends most in each of the {total} heads of {COREFERENCE[1]}",
        ),
        Paragraph(
            text=f"One head has a story, two heads have two. All of them together have none: {separators} of {total} "
            "attend most to a separator, as heads do that find nothing. All heads at once do not give an "
            "interpretation."
        ),
    ]


def masked_weights(models: Models) -> tuple[list[str], int, Tensor, Tensor, Tensor]:
    """Tokens, the head with the widest map, its scores, and the weights of these scores without and with the mask."""
    import torch

    figure = figure_for(models, DECODER, CAR)
    tokens = [token.strip() for token in figure.tokens["decoder"]]
    one = figure.box("decoder.attention").in_layer(1)
    scores = one["q"] @ one["k"].mT / one["q"].shape[-1] ** 0.5
    plain = scores.softmax(-1)
    spread = -(plain * plain.clamp(min=1e-12).log()).sum((-1, -2))
    head = int(spread.argmax())
    future = torch.ones(len(tokens), len(tokens), dtype=torch.bool).triu(1)
    masked = scores[head].masked_fill(future, -torch.inf).softmax(-1)
    difference = (masked - one["weights"][head]).abs().max()
    return tokens, head, plain[head], masked, difference


def masked_beside_plain(models: Models) -> list[StoryBlock]:
    """The same scores with and without the causal mask."""
    tokens, head, plain, masked, difference = masked_weights(models)
    names = [token if token != "<|endoftext|>" else "begin" for token in tokens]
    row = 2
    allowed = plain[row, : row + 1]
    steps = [
        (
            names[column],
            f"{plain[row, column]:.3f}",
            f"{allowed[column] / allowed.sum():.3f}" if column <= row else "masked",
            f"{masked[row, column]:.3f}",
        )
        for column in range(len(names))
    ]
    return [
        Paragraph(
            text=f"{DECODER} reads “{CAR}” (layer 1, head {head}). Both maps come from the same queries and keys. On "
            "the right, scores of later words are set to -∞ before the softmax, so their weights are exactly 0."
        ),
        FigureRow(blocks=[_map("Self-attention: no mask", plain, names), _map("Masked self-attention", masked, names)]),
        StoryTable(
            headers=("key", "no mask", "earlier words, divided by their sum", "masked"),
            rows=steps,
            caption=f"The row of “{names[row]}”",
        ),
        Paragraph(
            text="The mask moves weight, it does not lose any: what the later words had is shared by the earlier "
            "ones, in proportion. Largest difference between the map on the right and the model's own: "
            f"{difference:.1e}."
        ),
    ]


def translator_attentions(models: Models) -> tuple[Figure, list[tuple[str, str, str, str, BoxPass]]]:
    figure = figure_for(models, TRANSLATOR, STUDENT)
    kinds = [
        ("encoder self-attention", "encoder.attention", "the source", "the source"),
        ("masked decoder self-attention", "decoder.attention", "the translation so far", "the translation so far"),
        ("encoder-decoder attention", "decoder.cross", "the translation so far", "the encoder's output"),
    ]
    return figure, [(title, name, a, b, figure.box(name).in_layer(1)) for title, name, a, b in kinds]


def beside_encoder_decoder(models: Models) -> list[StoryBlock]:
    """Self-attention and encoder-decoder attention of one translator, with the shapes of their maps."""
    figure, kinds = translator_attentions(models)
    rows, drawings = [], []
    for title, name, queries, keys, one in kinds:
        weights = one["weights"].mean(0)
        zeros = int((weights == 0).sum())
        rows.append((title, queries, keys, shape_text(weights), f"{zeros} of {weights.numel()}"))
        part = "decoder" if name.startswith("decoder") else "encoder"
        sides = figure.tokens[part], figure.tokens["encoder" if name.endswith("cross") else part]
        drawings.append(_map(title, weights, *([_begin(token) for token in side] for side in sides)))
    return [
        StoryTable(
            headers=("attention", "queries from", "keys and values from", "map", "masked weights"),
            rows=rows,
            text_columns=[1, 2],
            caption=f"{TRANSLATOR} translates “{STUDENT}” as “{figure.target}”",
        ),
        FigureRow(blocks=drawings),
        Paragraph(
            text="The formula is the same in all three, softmax(QK^T/√d_k)V; only the origin of Q, K and V and the "
            "mask differ. The attention of a recurrent translator is the third kind with one head and without "
            "projections: its query is the decoder's state, and keys and values are both the encoder's states. Maps: "
            "mean of the heads of layer 1."
        ),
    ]


def _begin(token: str) -> str:
    return {"<|endoftext|>": "end", "<|begin|>": "begin"}.get(token, token.strip())
