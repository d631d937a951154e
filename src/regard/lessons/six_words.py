"""The six-word lesson: a Transformer with six output words learns two translations, and every probability is shown.

lesson = train_six_words(seed=0)
for step in lesson.pairs[0].decoding:
    print(step.prefix, step.probabilities, step.chosen)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.cancellation import check_cancelled
from regard.errors import InputError
from regard.lessons.reverse import single_thread
from regard.models import Transformer, TransformerConfig
from regard.nn.masks import Padded
from regard.render.story import FigureRow, HeatMap, Paragraph, Section, Story, StoryTable

TARGET_WORDS = ("a", "am", "I", "thanks", "student", "<eos>")  # the deck's order: ids 0 to 5
SOURCE_WORDS = ("je", "suis", "étudiant", "merci")
PAIRS = (("je suis étudiant", "I am a student <eos>"), ("merci", "thanks <eos>"))
END = TARGET_WORDS.index("<eos>")
MAX_STEPS = 6  # of decoding: one more than the longer translation
EPOCHS, LEARNING_RATE = 60, 3e-3
LOSS_NOTE = (
    "The loss is cross-entropy, -log of the probability of the correct word, summed over the seven outputs of both "
    "sentences. In training the decoder reads the correct previous words (teacher forcing); its first input is <eos>."
)


@dataclass(frozen=True)
class SixWordsStep:
    """One decoding step: the words so far, the probability of each next word, and the chosen word."""

    prefix: list[str]
    probabilities: list[float]
    chosen: str


@dataclass(frozen=True)
class SixWordsPair:
    """A sentence and its translation. `before` and `after` training: a row of six probabilities per output."""

    source: str
    target: list[str]
    before: list[list[float]]
    after: list[list[float]]
    decoding_before: list[SixWordsStep]
    decoding: list[SixWordsStep]

    def section(self) -> Section:
        """The probabilities before and after training, and every decoding step."""
        tables, maps = [], []
        for when, probabilities in (("before", self.before), ("after", self.after)):
            rows = [
                (f"#{number}", word, *(f"{p:.3f}" for p in row))
                for number, (word, row) in enumerate(zip(self.target, probabilities, strict=True), start=1)
            ]
            caption = f"Probabilities {when} training"
            tables.append(StoryTable(headers=("output", "target", *TARGET_WORDS), rows=rows, caption=caption))
            maps.append(
                HeatMap(
                    weights=probabilities,
                    rows=self.target,
                    columns=TARGET_WORDS,
                    title=f"{when} training",
                    row_title="right",
                    column_title="word",
                )
            )
        steps = [
            (str(number), " ".join(step.prefix), *(f"{p:.3f}" for p in step.probabilities), step.chosen)
            for number, step in enumerate(self.decoding, start=1)
        ]
        decoding = StoryTable(
            headers=("step", "words so far", *TARGET_WORDS, "chosen"),
            rows=steps,
            caption="Decoding after training: every chosen word is an input of the next step",
        )
        heading = f"{self.source} → {' '.join(self.target)}"
        return Section(heading=heading, blocks=[*tables, FigureRow(blocks=maps, page_only=True), decoding])


@dataclass(frozen=True)
class SixWordsLesson:
    """`losses` is the summed cross-entropy of all seven outputs before training and after every epoch."""

    losses: list[float]
    pairs: list[SixWordsPair]
    seed: int = 0

    def to_dict(self) -> dict[str, object]:
        """The document of --json."""
        return {"vocabulary": TARGET_WORDS, "epochs": len(self.losses) - 1, **asdict(self)}

    def story(self) -> Story:
        last = len(self.losses) - 1
        epochs = sorted({round(last * part / 6) for part in range(7)})
        losses = [(str(epoch), f"{self.losses[epoch]:.4f}") for epoch in epochs]
        story = Story(
            title="Six words, two translations",
            blocks=[
                Paragraph(text="A Transformer with an output vocabulary of six words learns two translations."),
                Section(
                    heading="The loss falls",
                    blocks=[StoryTable(headers=("epochs", "summed cross-entropy"), rows=losses)],
                ),
                *(pair.section() for pair in self.pairs),
                Section(heading="Method", blocks=[Paragraph(text=LOSS_NOTE)]),
            ],
        )
        story.with_reproduction(
            f"regard lesson six-words --epochs {last} --seed {self.seed} --output page.html",
            "from regard.lessons.six_words import train_six_words\n\n"
            f"lesson = train_six_words(epochs={last}, seed={self.seed})",
        )
        return story


def new_translator(*, seed: int = 0) -> Transformer:
    """A small Transformer (2017). The deck has no start token, so <eos> is also the decoder's first input."""
    config = TransformerConfig(
        vocab_size=len(SOURCE_WORDS),
        target_vocab_size=len(TARGET_WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        dropout=0.0,
        share_embeddings=False,
        decoder_start_token_id=END,
        eos_token_id=END,
    )
    with torch.random.fork_rng(devices=[]):  # keeps the caller's random state
        torch.default_generator.manual_seed(seed)  # of the CPU; that of a GPU would stay changed
        return Transformer(config).eval()


def train_six_words(
    *,
    epochs: int = EPOCHS,
    learning_rate: float = LEARNING_RATE,
    seed: int = 0,
    on_epoch: Callable[[float], None] = lambda loss: None,
) -> SixWordsLesson:
    """Train on both pairs at once with cross-entropy, summed over the outputs."""
    if epochs < 1:
        raise InputError(f"epochs must be at least 1, not {epochs}")
    if not 0 < learning_rate < math.inf:
        raise InputError(f"the learning rate must be a number above 0, not {learning_rate}")
    model = new_translator(seed=seed)
    with single_thread():
        before, decoding_before = _tables(model), [decode(model, source) for source, _ in PAIRS]
        losses = []
        for loss in _train(model, epochs, learning_rate):
            losses.append(loss)
            on_epoch(loss)
        with torch.no_grad():
            losses.append(_loss(model).item())
        after = _tables(model)
        pairs = [
            SixWordsPair(
                source, target.split(), before[number], after[number], decoding_before[number], decode(model, source)
            )
            for number, (source, target) in enumerate(PAIRS)
        ]
    return SixWordsLesson(losses, pairs, seed)


def _train(model: Transformer, epochs: int, learning_rate: float) -> Iterator[float]:
    """Yield the loss at the start of each epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(epochs):
        check_cancelled()
        loss = _loss(model)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        yield loss.item()


@torch.no_grad()
def decode(model: Transformer, source: str) -> list[SixWordsStep]:
    """Greedy decoding until <eos> or six words."""
    logits, state = model.start(_ids(source.split(), SOURCE_WORDS)[None])
    prefix, steps = [TARGET_WORDS[END]], []
    for _ in range(MAX_STEPS):
        chosen = logits.argmax(-1)
        steps.append(SixWordsStep(list(prefix), logits[0].softmax(-1).tolist(), TARGET_WORDS[int(chosen)]))
        if int(chosen) == END:
            break
        prefix.append(TARGET_WORDS[int(chosen)])
        logits, state = model.step(chosen, state)
    return steps


def _outputs(model: Transformer) -> list[Tensor]:
    """The logits (T, 6) of each pair's outputs under teacher forcing."""
    sources = [_ids(source.split(), SOURCE_WORDS) for source, _ in PAIRS]
    inputs = [_ids([TARGET_WORDS[END], *target.split()[:-1]], TARGET_WORDS) for _, target in PAIRS]
    layouts = [Padded.from_lengths([len(ids) for ids in side]) for side in (sources, inputs)]
    padded = [torch.nn.utils.rnn.pad_sequence(side, batch_first=True) for side in (sources, inputs)]
    logits = model.logits(model(*padded, *layouts))
    return [row[: len(ids)] for row, ids in zip(logits, inputs, strict=True)]


def _loss(model: Transformer) -> Tensor:
    targets = torch.cat([_ids(target.split(), TARGET_WORDS) for _, target in PAIRS])
    return F.cross_entropy(torch.cat(_outputs(model)), targets, reduction="sum")


@torch.no_grad()
def _tables(model: Transformer) -> list[list[list[float]]]:
    return [logits.softmax(-1).tolist() for logits in _outputs(model)]


def _ids(words: Sequence[str], vocabulary: Sequence[str]) -> Tensor:
    return torch.tensor([vocabulary.index(word) for word in words])
