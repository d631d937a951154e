"""The computed parts and answers of the chapter on BERT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import DeckRow, ExerciseAnswer, beside_deck
from regard.lessons.course.data_sets import BERT_VOCABULARY, SST2, find_data, missing_data
from regard.render.story import (
    BarChart,
    Diagram,
    DiagramArrow,
    DiagramBox,
    NumberMatrix,
    Paragraph,
    StoryBlock,
    StoryTable,
)

if TYPE_CHECKING:
    from regard.training.recipes.pretraining.token_stream import TokenStream

MODEL = "regard-bert"
SKIT = "Let's stick to [MASK] in this skit"
WHOLE = "Let's stick to improvisation in this skit"
# The five rows of SST-2 on the slides, as its file spells them, and the ids printed beside them; the last is cut off.
ROWS = (
    "a stirring , funny and finally transporting re imagining of beauty and the beast and 1930s horror films",
    "apparently reassembled from the cutting room floor of any given daytime soap",
    "they presume their audience wo n't sit still for a sociology lesson",
    "this is a visually stunning rumination on love , memory , history and the war between art and commerce",
    "jonathan parker 's bartleby should have been the be all end all of the modern office anomie films",
)
DECK_IDS = (
    "101, 1037, 18385, 1010, 6057, 1998, 2633, 182..",
    "101, 4593, 2128, 27241, 23931, 2013, 1996, 62..",
    "101, 2027, 3653, 23545, 2037, 4378, 24185, 10..",
    "101, 2023, 2003, 1037, 17453, 14726, 19379, 1..",
    "101, 5655, 6262, 1005, 1055, 12075, 2571, 376..",
)
PAIRS = (
    ("The fire had burned down to a few red coals.", "She put another log on it and blew until it caught."),
    ("The fire had burned down to a few red coals.", "The senate votes on the tariff of 1890 next week."),
    ("He opened the letter with shaking hands.", "It was from his brother, who had been missing for years."),
    ("He opened the letter with shaking hands.", "The river is the longest in the southern provinces."),
)
STORY = """The ship left the harbor at dawn. The wind was fresh and the captain was in a good mood. By noon the coast
was out of sight. Nobody on board knew that the storm was near.

Bread needs four things. Flour, water, salt and time are enough. Mix them in a bowl and wait until the dough has
doubled. Then bake it in a very hot oven.

The committee met on Tuesday. It discussed the new bridge for three hours. No decision was made, and the members went
home. They will meet again in May."""


def sizes(models: Models) -> list[StoryBlock]:
    import torch

    from regard.models import Bert, BertConfig
    from regard.models.family import known_checkpoints

    large = next(one for one in known_checkpoints() if one.name.endswith("bert-large-uncased"))
    shape: Any = large.shape
    configs: dict[str, Any] = {"BERT base": BertConfig(), "BERT large": BertConfig(**shape)}
    with models.use(MODEL) as loaded:
        configs[MODEL] = loaded.model.config
    rows = []
    for name, config in configs.items():
        with torch.device("meta"):  # counts without allocating
            count = sum(parameter.numel() for parameter in Bert(config).parameters())
        embedding = config.vocab_size * config.hidden_size
        rows.append(
            (
                name,
                str(config.num_hidden_layers),
                str(config.hidden_size),
                str(config.num_attention_heads),
                str(config.intermediate_size),
                str(config.max_position_embeddings),
                f"{count / 1e6:.1f} M",
                f"{embedding / count:.0%}",
            )
        )
    headers = ("model", "layers", "width", "heads", "FFN", "positions", "parameters", "token embeddings")
    base, big = configs["BERT base"], configs["BERT large"]
    deck = [
        DeckRow("encoder layers, base and large", "12 or 24", f"{base.num_hidden_layers}, {big.num_hidden_layers}"),
        DeckRow("attention heads", "12 or 16", f"{base.num_attention_heads}, {big.num_attention_heads}"),
        DeckRow(
            '"FF networks have 768 or 1024 hidden units"',
            "768 or 1024",
            f"{base.intermediate_size}, {big.intermediate_size}",
            f"the deck's numbers are the width ({base.hidden_size}, {big.hidden_size}); the activation is "
            f"{base.hidden_act}",
            "P12",
        ),
        DeckRow("positions in the figure", "512", str(base.max_position_embeddings)),
    ]
    return [StoryTable(headers=headers, rows=rows, caption="Sizes, counted from the models"), beside_deck(deck)]


def two_steps(models: Models) -> list[StoryBlock]:
    boxes = [
        DiagramBox(key="text", text="text without labels", column=0, row=0),
        DiagramBox(key="tasks", text="masked tokens + next sentence", column=1, row=0),
        DiagramBox(key="model", text="pretrained BERT", column=2, row=0, strong=True),
        DiagramBox(key="labels", text="labeled examples of a task", column=0, row=1),
        DiagramBox(key="head", text="one new layer", column=1, row=1),
        DiagramBox(key="tuned", text="classifier, tagger, ...", column=2, row=1, strong=True),
    ]
    arrows = [("text", "tasks"), ("tasks", "model"), ("labels", "head"), ("head", "tuned"), ("model", "tuned")]
    return [
        Diagram(
            title="Two steps: pretraining, then supervised training",
            boxes=boxes,
            arrows=[DiagramArrow(start=start, end=end) for start, end in arrows],
        )
    ]


def ids(models: Models) -> list[StoryBlock]:
    from regard.interpret.tokenization import open_vocabulary, tokenize_texts

    path = find_data(BERT_VOCABULARY)
    if path is not None:
        result = tokenize_texts(open_vocabulary(path), ROWS, source="BERT's vocabulary")
        blocks: list[StoryBlock] = []
    else:
        blocks = [Paragraph(text=missing_data(BERT_VOCABULARY) + " The ids below are those of the built-in tokenizer.")]
        with models.use(MODEL) as loaded:
            result = tokenize_texts(loaded.tokenizer, ROWS, source=MODEL)
    deck = []
    for number, (text, printed) in enumerate(zip(result.texts, DECK_IDS, strict=True), 1):
        same = ", ".join(map(str, text.ids)).startswith(printed.rstrip("."))
        note = "equal" if same else "another vocabulary"
        deck.append(DeckRow(f"row {number}", printed, ", ".join(map(str, text.ids[:8])) + "..", note))
    blocks.append(beside_deck(deck, caption=f"The first ids of the five rows, with {result.source}"))
    pieces = [token.token for token in result.texts[3].tokens]
    blocks.append(Paragraph(text=f"Row 4 in pieces: {' '.join(pieces)}. A piece that continues a word starts with ##."))
    data = find_data(SST2)
    if path is None or data is None:
        blocks.append(Paragraph(text=f"The longest row: {missing_data(SST2 if data is None else BERT_VOCABULARY)}"))
        return blocks
    lines = data.read_text(encoding="utf-8").splitlines()
    ids, _ = open_vocabulary(path).ids_batch([line.split("\t")[0] for line in lines])
    first, every = max(map(len, ids[:2000])), max(map(len, ids))
    note = f"of the first 2,000 rows; {every} of all {len(ids):,}"
    return [*blocks, beside_deck([DeckRow("tokens of the longest sentence", "66", str(first), note, "P15")])]


def embeddings(models: Models) -> list[StoryBlock]:
    from regard.interpret.tokenization import tokenize_texts

    with models.use(MODEL) as loaded:
        result = tokenize_texts(
            loaded.tokenizer, ["my dog is cute"], "he likes playing", source=MODEL, model=loaded.model
        )
    [text] = result.texts
    names = [token.token for token in text.tokens]
    matrices = [
        NumberMatrix(
            title=f"{row.name}: the first {len(row.values[0])} numbers of each vector",
            values=row.values,
            rows=names,
            columns=[str(number) for number in range(len(row.values[0]))],
            digits=3,
        )
        for row in text.embeddings[:4]
    ]
    lengths = {row.name: row.norms[1] for row in text.embeddings}
    about = (
        f'For "{names[1]}" the vectors have the lengths {lengths["token"]:.2f} (token), {lengths["segment"]:.2f} '
        f"(segment) and {lengths['position']:.2f} (position), and their sum {lengths['sum']:.2f}: the token counts "
        "most, and all three can be told apart in the sum because they are learned together."
    )
    return [*matrices, Paragraph(text=about)]


def _mask(models: Models, seed: int, text: str = WHOLE) -> tuple[Any, Any, list[int]]:
    """The tokenizer, the masked batch and the original ids of a text."""
    import torch

    from regard.training.recipes.pretraining.objectives import masking_for

    with models.use(MODEL) as loaded:
        tokenizer = loaded.tokenizer
        ids = tokenizer.encode(text).ids
        batch = masking_for(tokenizer)(torch.tensor([ids]), torch.Generator().manual_seed(seed))
    return tokenizer, batch, ids


def masking(models: Models) -> list[StoryBlock]:
    rows = []
    for seed in range(4):
        tokenizer, batch, ids = _mask(models, seed, f"{WHOLE}, because the actors had no script.")
        changed = [tokenizer.token(number) for number in batch.ids[0].tolist()]
        chosen = [f"{tokenizer.token(ids[at])} -> {changed[at]}" for at in sorted(batch.positions.tolist())]
        rows.append((f"seed {seed}", " ".join(changed[1:-1]), "; ".join(chosen)))
    table = StoryTable(headers=("", "input", "chosen tokens"), rows=rows, text_columns=[1, 2])
    fractions = _mask_fractions(models)
    deck = [
        DeckRow("tokens chosen", "15%", f"{fractions['chosen']:.1%}", "tokens, not words", "P10"),
        DeckRow("of these: [MASK]", "all", f"{fractions['mask']:.1%}", "BERT's paper: 80%", "P10"),
        DeckRow("of these: another token", "-", f"{fractions['random']:.1%}", "BERT's paper: 10%"),
        DeckRow("of these: unchanged", "-", f"{fractions['same']:.1%}", "BERT's paper: 10%"),
    ]
    return [table, beside_deck(deck, caption="100,000 tokens, masked at random")]


def _mask_fractions(models: Models) -> dict[str, float]:
    """What becomes of 100,000 ordinary tokens."""
    import torch

    from regard.training.recipes.pretraining.objectives import masking_for

    with models.use(MODEL) as loaded:
        tokenizer = loaded.tokenizer
        masking = masking_for(tokenizer)
    generator = torch.Generator().manual_seed(0)
    ids = masking.ordinary[torch.randint(len(masking.ordinary), (100_000,), generator=generator)]
    batch = masking(ids, generator)
    after = batch.ids[batch.positions]
    mask, same = after == tokenizer.mask_token_id, after == batch.targets
    fractions = {"mask": mask, "same": same, "random": ~mask & ~same}
    return {"chosen": len(after) / len(ids), **{name: float(where.float().mean()) for name, where in fractions.items()}}


def loss(models: Models) -> list[StoryBlock]:
    import torch

    from regard.inference.masked_lm import MaskedLM
    from regard.nn.training import evaluation_mode

    tokenizer, batch, ids = _mask(models, 2, f"{WHOLE}, because the actors had no script.")
    inputs = batch.ids[0].tolist()
    with models.use(MODEL) as loaded, evaluation_mode(loaded.model):
        masked_lm = MaskedLM.from_model(loaded.model, loaded.tokenizer, purpose="the loss")
        logits = masked_lm.logits([inputs], [(0, at) for at in range(len(ids))])
    losses = torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="none")
    chosen = set(batch.positions.tolist())
    rows = []
    for at, (before, after) in enumerate(zip(ids, inputs, strict=True)):
        probability = float(torch.exp(-losses[at]))
        loss = f"{float(losses[at]):.3f}" if at in chosen else "not counted"
        rows.append((str(at), tokenizer.token(before), tokenizer.token(after), f"{probability:.1%}", loss))
    mean = float(losses[sorted(chosen)].mean())
    visible = [at for at in range(1, len(ids) - 1) if at not in chosen]
    table = StoryTable(headers=("position", "original", "input", "p(original)", "loss"), rows=rows)
    summary = (
        f"The loss of this sentence is the mean over its {len(chosen)} chosen positions: {mean:.3f}. At the "
        f"{len(visible)} other words and marks it would be {float(losses[visible].mean()):.3f}: copying what is "
        "visible is easy and teaches little."
    )
    return [table, Paragraph(text=summary)]


def skit(models: Models) -> list[StoryBlock]:
    from regard.inference.masked_lm import fill_blanks

    words = ("Aardvark", "Improvisation", "Zyzzyva")
    with models.use(MODEL) as loaded:
        top = fill_blanks(loaded.model, loaded.tokenizer, SKIT, top=10).masks[0]
        found = fill_blanks(loaded.model, loaded.tokenizer, SKIT, targets=words).masks[0]
        spelled = {word: loaded.tokenizer.encode(word, add_special_tokens=False).ids for word in words}
    rows = []
    for word, printed in zip(words, ("0.1%", "10%", "0%"), strict=True):
        one = next(candidate for candidate in found if candidate.ids == spelled[word])
        pieces = f"{len(one.ids)} pieces: {one.token}" if len(one.ids) > 1 else "one piece"
        rows.append(DeckRow(word, printed, f"{one.probability:.2g}", pieces))
    bars = BarChart.of_probabilities(f"{SKIT}: the likeliest tokens", [(one.token, one.probability) for one in top])
    note = (
        "The figure in the deck is an illustration; no model computed its three percentages. A word of several pieces "
        "is scored with as many masks, which are filled in from left to right."
    )
    return [bars, beside_deck(rows, caption="The three words of the deck"), Paragraph(text=note)]


def next_sentence(models: Models) -> list[StoryBlock]:
    rows = [(first, second, f"{value:.1%}") for (first, second), value in zip(PAIRS, _follows(models), strict=True)]
    table = StoryTable(headers=("A", "B", "B follows A"), rows=rows, text_columns=[1])
    deck = [
        DeckRow(
            "the question of the second task",
            "does the first follow the second?",
            "does B follow A?",
            "the other decks ask it as we do",
            "P3",
        )
    ]
    return [table, beside_deck(deck)]


def _follows(models: Models, pairs: Sequence[tuple[str, str]] = PAIRS) -> list[float]:
    from regard.inference.masked_lm import predict_next_sentence

    with models.use(MODEL) as loaded:
        return [predict_next_sentence(loaded.model, loaded.tokenizer, *pair).is_next for pair in pairs]


def _stream(tokenizer: Any) -> tuple[TokenStream, list[str]]:
    """The story as a stream of tokens, and its sentences."""
    import numpy as np

    from regard.data.corpus.sentences import split_sentences
    from regard.training.recipes.pretraining.token_stream import TokenStream

    ids: list[int] = []
    sentences, documents, texts = [], [], []
    for paragraph in STORY.split("\n\n"):
        paragraph = " ".join(paragraph.split())
        documents.append(len(ids))
        for start, end in split_sentences(paragraph):
            sentences.append(len(ids))
            texts.append(paragraph[start:end])
            ids += tokenizer.encode(texts[-1], add_special_tokens=False).ids
    ends = [len(ids)]
    stream = TokenStream(
        (np.array(ids),), np.array([0, *ends]), np.array([*sentences, *ends]), np.array([*documents, *ends])
    )
    return stream, texts


def examples(models: Models) -> list[StoryBlock]:
    from regard.training.recipes.pretraining.row_sampler import SentencePairs

    with models.use(MODEL) as loaded:
        tokenizer = loaded.tokenizer
    stream, sentences = _stream(tokenizer)
    spans = SentencePairs(stream, tokens=60, seed=0, short=1.0).spans(0, 2000)
    rows = []
    for number in range(6):
        a, b = (tokenizer.decode(stream.read(*side[number])) for side in (spans.first, spans.second))
        rows.append((a, b, "follows" if spans.labels[number] == 0 else "random"))
    share = float((spans.labels == 0).mean())
    table = StoryTable(headers=("A", "B", "label"), rows=rows, text_columns=[1])
    about = (
        f"Three documents were split into {len(sentences)} sentences and {stream.tokens} tokens. A pair takes B either "
        "from behind A in the same document, or from another document."
    )
    deck = [DeckRow("pairs in which B follows A", "50%", f"{share:.1%}", "of 2,000 sampled pairs")]
    return [Paragraph(text=about), table, beside_deck(deck)]


def both_losses(models: Models) -> list[StoryBlock]:
    import math

    import torch

    from regard.data.batch import collate
    from regard.nn.training import evaluation_mode
    from regard.training.recipes.pretraining.objectives import masking_for

    rows = []
    for first, second in PAIRS[:2]:
        with models.use(MODEL) as loaded, evaluation_mode(loaded.model):
            model: Any = loaded.model
            pair = loaded.tokenizer.encode(first, second)
            masked = masking_for(loaded.tokenizer)(torch.tensor([pair.ids]), torch.Generator().manual_seed(0))
            batch = collate(masked.ids.tolist())
            hidden = model(batch.ids, batch.layout, torch.tensor(pair.segments))
            tokens = torch.nn.functional.cross_entropy(model.mlm_head(hidden[masked.positions]), masked.targets)
            label = torch.tensor([0 if second == PAIRS[0][1] else 1])
            order = torch.nn.functional.cross_entropy(model.nsp_head(model.pooler(hidden, batch.layout)), label)
        rows.append((second, f"{float(tokens):.3f}", f"{float(order):.3f}", f"{float(tokens + order):.3f}"))
    size: int = model.config.vocab_size
    chance = (
        f"Guessing would cost ln {size:,} = {math.log(size):.2f} "
        f"for a masked token and ln 2 = {math.log(2):.2f} for a pair."
    )
    headers = ("B", "masked tokens", "next sentence", "sum")
    caption = f'Losses in nats for A = "{PAIRS[0][0]}"'
    return [StoryTable(headers=headers, rows=rows, caption=caption), Paragraph(text=chance)]


def answer_mask_count(models: Models) -> ExerciseAnswer:
    fractions = _mask_fractions(models)
    count = 100 * fractions["chosen"] * fractions["mask"]
    choice = min(range(3), key=lambda index: abs((15, 12, 80)[index] - count))
    return ExerciseAnswer(
        choice,
        f"{fractions['chosen']:.1%} of the tokens are chosen and {fractions['mask']:.1%} of those become [MASK]: about "
        f"{count:.1f} of 100. The rest of the chosen ones stay or become other tokens, and are predicted as well.",
    )


def answer_loss_positions(models: Models) -> ExerciseAnswer:
    _, batch, ids = _mask(models, 2, f"{WHOLE}, because the actors had no script.")
    count = len(batch.positions)
    return ExerciseAnswer(
        1 if count < len(ids) - 2 else 0,
        f"The text has {len(ids)} tokens with [CLS] and [SEP]; {count} were chosen, and only these have a target.",
    )


def answer_pieces(models: Models) -> ExerciseAnswer:
    with models.use(MODEL) as loaded:
        pieces = loaded.tokenizer.encode("improvisation", add_special_tokens=False).tokens
    return ExerciseAnswer(
        min(len(pieces), 3) - 1,
        f"{MODEL} spells it {' '.join(pieces)}. A rarer word has more pieces, so one [MASK] cannot stand for it.",
    )


def answer_separator(models: Models) -> ExerciseAnswer:
    from regard.interpret.tokenization import tokenize_texts

    with models.use(MODEL) as loaded:
        [text] = tokenize_texts(loaded.tokenizer, ["a dog"], "a cat", source=MODEL, model=loaded.model).texts
    first, last = [at for at, token in enumerate(text.tokens) if token.special][1:]
    differing = [row.name for row in text.embeddings[:3] if row.values[first] != row.values[last]]
    choice = {("segment", "position"): 1, ("position",): 0, ("token", "segment", "position"): 2}[tuple(differing)]
    return ExerciseAnswer(choice, f"Their {' and '.join(differing)} vectors differ; the token vector is the same.")


def answer_follows(models: Models) -> ExerciseAnswer:
    true, random = _follows(models, PAIRS[:2])
    return ExerciseAnswer(
        0 if true > random else 1, f"{MODEL} gives the first continuation {true:.1%} and the second {random:.1%}."
    )


def answer_order(models: Models) -> ExerciseAnswer:
    first, second = PAIRS[2]
    forward, backward = _follows(models, [(first, second), (second, first)])
    close = abs(forward - backward) < 0.05
    return ExerciseAnswer(
        0 if close else 1 if forward > backward else 2,
        f"In this order {forward:.1%}, swapped {backward:.1%}. The random sentences of the task come from other "
        "documents, so a common topic is often enough to answer; this is one reason why later models dropped the task.",
    )


def answer_embedding_share(models: Models) -> ExerciseAnswer:
    import torch

    from regard.models import Bert, BertConfig

    config = BertConfig()
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in Bert(config).parameters())
    share = config.vocab_size * config.hidden_size / count
    return ExerciseAnswer(
        min(range(3), key=lambda index: abs((0.02, 0.2, 0.6)[index] - share)),
        f"{config.vocab_size:,} x {config.hidden_size} of {count:,} parameters are {share:.1%}; the same matrix is "
        "used again to turn vectors into logits over the vocabulary.",
    )


def answer_top(models: Models) -> ExerciseAnswer:
    from regard.inference.masked_lm import fill_blanks

    words = ("music", "improvisation", "zyzzyva")
    with models.use(MODEL) as loaded:
        found = fill_blanks(loaded.model, loaded.tokenizer, SKIT, targets=words).masks[0]
        best = loaded.tokenizer.decode(found[0].ids)
    values = ", ".join(f"{one.token} {one.probability:.2g}" for one in found)
    return ExerciseAnswer(
        words.index(best), f"{values}. This is not only about meaning: words of several pieces multiply probabilities."
    )
