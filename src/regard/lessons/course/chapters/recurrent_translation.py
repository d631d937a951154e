"""Chapter: Recurrent translation and its bottleneck."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import (
    Chapter,
    Computed,
    Exercise,
    ExerciseAnswer,
    LiveView,
    Prose,
)
from regard.lessons.course.chapters.reversed_digits import REVERSAL_PARTS
from regard.render.story import (
    Diagram,
    DiagramArrow,
    DiagramBox,
    NumberMatrix,
    StoryBlock,
    StoryTable,
)

if TYPE_CHECKING:
    pass

TRANSLATOR = "regard-lstm-fr-en"
SENTENCES = (
    "Je suis étudiant.",
    "Je suis étudiant et je dois aller au marché.",
    "Je suis étudiant et je dois aller au marché demain matin avec ma sœur, parce que nous n'avons plus de pain.",
)


def _unrolled(models: Models) -> list[StoryBlock]:
    from regard.inference.translation.forced_decoding import force_targets
    from regard.inference.translation.translator import use_translator

    source = "Je suis étudiant"
    with use_translator(models, TRANSLATOR) as translator:
        [forced] = force_targets(translator, source, ["I am a student"])
    assert forced.alignment is not None
    read, written = forced.alignment.source, forced.alignment.target
    boxes = [DiagramBox(key=f"r{n}", text=word, column=n, row=3) for n, word in enumerate(read)]
    boxes += [DiagramBox(key=f"h{n}", text=f"encoder, step {n + 1}", column=n, row=2) for n in range(len(read))]
    at = len(read)
    boxes.append(DiagramBox(key="c", text="context", column=at, row=2, strong=True))
    boxes += [DiagramBox(key=f"s{n}", text=f"decoder, step {at + n + 1}", column=n, row=1) for n in range(len(written))]
    boxes += [DiagramBox(key=f"w{n}", text=word, column=n, row=0) for n, word in enumerate(written)]
    chain = [*(f"h{n}" for n in range(at)), "c", *(f"s{n}" for n in range(len(written)))]
    arrows = [DiagramArrow(start=one, end=two) for one, two in pairwise(chain)]
    arrows += [DiagramArrow(start=f"r{n}", end=f"h{n}") for n in range(at)]
    arrows += [DiagramArrow(start=f"s{n}", end=f"w{n}") for n in range(len(written))]
    title = "The encoder reads a word per time step, the decoder writes a word per time step"
    return [Diagram(title=title, boxes=boxes, arrows=arrows)]


def _contexts(models: Models) -> list[StoryBlock]:
    rows, vectors = [], []
    for text, tokens, state in _context_vectors(models):
        rows.append((text, str(tokens), str(len(state)), f"{len(state) / tokens:.1f}"))
        vectors.append(state[:10])
    names = [f"sentence {number}" for number in range(1, len(vectors) + 1)]
    return [
        StoryTable(
            headers=("sentence", "tokens", "numbers in the last state h", "per token"),
            rows=rows,
            caption="The context of three sentences",
        ),
        NumberMatrix(
            title="The first ten numbers of each context",
            values=vectors,
            rows=names,
            columns=list(map(str, range(10))),
        ),
    ]


def _context_vectors(models: Models) -> list[tuple[str, int, list[float]]]:
    """Each sentence, its number of tokens, and the last state of the encoder's top layer."""
    import torch

    from regard.inference.translation.translator import use_translator

    found = []
    with use_translator(models, TRANSLATOR) as translator, torch.inference_mode():
        for text in SENTENCES:
            ids = translator.subwords.encode_sources([text])
            state = translator.model.encode(torch.tensor(ids, device=translator.device))
            found.append((text, len(ids[0]), state.hidden[0][-1, 0].tolist()))
    return found


def _any_items(models: Models) -> list[StoryBlock]:
    """Words, letters and frames through one class of models, with new weights: only the shapes matter."""
    import torch

    from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig

    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    kinds = (
        ("words, as ids", Seq2SeqConfig(source_size=50, target_size=60, embedding_size=8), torch.arange(6)[None]),
        ("letters, one-hot", Seq2SeqConfig(source_size=26, target_size=26), torch.eye(26)[None, :9]),
        ("image frames", Seq2SeqConfig(source_size=64, target_size=64, feedback="identity"), torch.rand(1, 12, 64)),
    )
    rows = []
    for name, config, source in kinds:
        with torch.inference_mode():
            outputs = Seq2Seq(config)(source, steps=5)
        rows.append((name, str(tuple(source.shape)), str(tuple(outputs.shape))))
    torch.random.set_rng_state(torch_state)
    headers = ("items", "source (batch, items, features)", "5 outputs (batch, items, features)")
    return [StoryTable(headers=headers, rows=rows, caption="Many to many: any items, and as many outputs as needed")]


def _answer_context(models: Models) -> ExerciseAnswer:
    found = _context_vectors(models)
    sizes, tokens = [len(state) for _, _, state in found], [count for _, count, _ in found]
    choice = 0 if len(set(sizes)) == 1 else 1
    return ExerciseAnswer(
        choice,
        f"The sentences have {', '.join(map(str, tokens))} tokens, and the encoder's last state has "
        f"{', '.join(map(str, sizes))} numbers: its size belongs to the model, not to the sentence.",
    )


CHAPTER = Chapter(
    name="recurrent-translation",
    title="Recurrent translation and its bottleneck",
    summary="An encoder puts a sentence into one vector, a decoder writes from it; long sequences do not fit.",
    parts=(
        Prose(
            "A translator reads a sequence and writes another one, often of a different length. Before 2017 both "
            "halves were recurrent networks: an encoder reads one item per time step and updates its state; a decoder "
            "starts from the encoder's last state and writes one item per time step, reading its own last output each "
            "time. The state that is handed over is called the context.\n\n"
            "The lectures draw this with a French sentence of three words. Follow the arrows: everything that the "
            "decoder will ever know of the French sentence passes through one box.",
            heading="One sequence into another",
            spec=("A1",),
        ),
        Computed("unrolled", "The encoder and the decoder in time", _unrolled, spec=("A1",)),
        Prose(
            "The items need not be words. A sequence of letters, of image frames or of sensor readings goes through "
            "the same two networks; only the first and the last layer know what an item is.",
            spec=("A3",),
        ),
        Computed("any-items", "Words, letters and frames", _any_items, spec=("A3",)),
        LiveView(
            "markt",
            "translate",
            {"model": "regard-de-en", "source": ["Ich muss auf den Markt gehen."], "steps": True},
            title="The lecture's sentence: a verb that waits until the end",
            spec=("A15",),
        ),
        Prose(
            'In "Ich muss auf den Markt gehen." the verb "gehen" is the last word, and in the translation it is the '
            "third. The decoder must write `go` before it writes `market`, so it cannot translate word by word: it has "
            "to know the whole sentence when it starts. The translator above has attention; the next chapter says what "
            "that is. Without it, the whole sentence must be in the context.",
            heading="The bottleneck",
            spec=("A2", "A15"),
        ),
        Computed("contexts", "The context of a short and of a long sentence", _contexts, spec=("A1", "A2")),
        Exercise(
            "context-size",
            "A sentence of three words becomes one context vector. How long is the context vector of a sentence that "
            "is seven times as long?",
            ("exactly as long", "seven times as long", "as long as its longest word"),
            _answer_context,
            spec=("A2",),
        ),
        *REVERSAL_PARTS,
    ),
    reading=("sutskever2014", "cho2014", "hochreiter1997", "alammar2018nmt"),
)
