"""The worked examples of the chapter on decoding: searches and samples of the built-in models, with their numbers."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import DeckRow, beside_deck
from regard.render.story import BarChart, FigureRow, Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from torch import Tensor

    from regard.inference.generation.text_generator import GeneratedText
    from regard.inference.translation.translator import Translation

TRANSLATOR, WRITER = "regard-fr-en", "regard-gpt"
STUDENT = "Je suis étudiant"
MEET = "On se retrouve devant la gare à midi."  # greedy search takes a wrong turn
LEAVE = "Il faut que je m'en aille."  # a short translation and a long one compete
STORY = "This is a story about me and my brothers"  # the deck's prompt
CERTAIN = "He was born in the United"
TEMPERATURE, TOP_P = 0.8, 0.9  # the deck's sliders
WIDTHS = (1, 2, 3, 5, 10)
NUM_SAMPLES = 200
LONG = 60  # tokens of a text that may repeat itself


def translations(
    models: Models, text: str, *, beams: int = 1, penalty: float = 1.0, count: int = 1
) -> list[Translation]:
    from regard.inference.generation.beam_search import Beam
    from regard.inference.translation.translator import translator_of

    beam = Beam(num_beams=beams, length_penalty=penalty, num_return_sequences=count)
    with models.use(TRANSLATOR) as loaded:
        return translator_of(loaded).translate([text], beam=beam)[0]


def greedy(models: Models) -> list[StoryBlock]:
    """Greedy search, step by step: probabilities and their product."""
    from regard.inference.translation.translator import translator_of
    from regard.interpret.translation import translate_in_steps

    with models.use(TRANSLATOR) as loaded:
        hypothesis = translate_in_steps(translator_of(loaded), MEET).hypotheses[0]
    rows, product = [], 1.0
    for number, step in enumerate(hypothesis.steps, 1):
        product *= step.probability
        second = step.likeliest[1]
        rows.append(
            (
                str(number),
                _token(step.token),
                f"{step.probability:.1%}",
                f"{_token(second.token)} {second.probability:.1%}",
                f"{product:.2%}",
                f"{math.log(product):.2f}",
            )
        )
    return [
        StoryTable(
            headers=("step", "token", "probability", "second choice", "product so far", "ln"),
            rows=rows,
            text_columns=[1, 3],
            caption=f"{TRANSLATOR} translates “{MEET}” greedily: “{hypothesis.text}”",
        )
    ]


def _token(token: str) -> str:
    return "<end>" if token == "<|endoftext|>" else token.strip()


def beam_widths(models: Models) -> list[StoryBlock]:
    """The best translation for several numbers of beams."""
    rows = []
    for width in WIDTHS:
        best = translations(models, MEET, beams=width)[0]
        rows.append(
            (
                str(width),
                f"{best.log_probability:.2f}",
                f"{math.exp(best.log_probability):.2%}",
                f"{best.score:.3f}",
                best.text,
            )
        )
    return [
        StoryTable(
            headers=("beams", "ln p", "p", "score", "translation"),
            rows=rows,
            text_columns=[4],
            caption=f"“{MEET}” with more and more beams; score: ln p divided by the length",
        )
    ]


def length_penalties(models: Models) -> list[StoryBlock]:
    """The ranking of one beam under different length penalties."""
    rows = []
    for penalty in (0.0, 0.5, 1.0):
        best = translations(models, LEAVE, beams=5, penalty=penalty)[0]
        rows.append(
            (f"{penalty:g}", best.text, str(len(best.ids) + 1), f"{best.log_probability:.2f}", f"{best.score:.3f}")
        )
    return [
        StoryTable(
            headers=("length penalty", "best translation", "tokens", "ln p", "score"),
            rows=rows,
            text_columns=[1],
            caption=f"“{LEAVE}” with five beams; score: ln p divided by length to the power of the penalty",
        ),
        Paragraph(
            text="Every token multiplies the probability by a number below 1, so the most probable translation tends "
            "to be a short one. The penalty divides the sum of logarithms by a power of the length, and long "
            "translations get a chance."
        ),
    ]


def next_logits(models: Models, prompt: str) -> tuple[Tensor, Any]:
    """The logits (V,) of the token after a prompt, and the tokenizer."""
    import torch

    from regard.inference.generation.decoder import as_decoder
    from regard.inference.generation.text_generator import TextGenerator
    from regard.nn.training import evaluation_mode

    with models.use(WRITER) as loaded, evaluation_mode(loaded.model):
        generator = TextGenerator(loaded.model, loaded.tokenizer)
        ids = generator.encode_prompt(prompt, max_new_tokens=1).ids
        logits, _ = as_decoder(loaded.model).start(torch.tensor([list(ids)]))
    return logits[0].double(), loaded.tokenizer


def temperatures(models: Models) -> list[StoryBlock]:
    """The distribution of the next token at several temperatures."""
    from regard.inference.generation.sampling import Sampling

    logits, tokenizer = next_logits(models, STORY)
    best = logits.topk(6).indices.tolist()
    names = [tokenizer.decode([token]).strip() for token in best]
    rows, charts = [], []
    for temperature in (0.5, TEMPERATURE, 1.0, 1.5):
        probabilities = Sampling(temperature=temperature).filtered(logits[None])[0].softmax(-1)
        entropy = float(-(probabilities * probabilities.clamp(min=1e-300).log()).sum())
        largest = [float(probabilities[token]) for token in best]
        rows.append((f"{temperature:g}", *(f"{one:.1%}" for one in largest), f"{math.exp(entropy):.1f}"))
        charts.append(BarChart.of_probabilities(f"temperature {temperature:g}", list(zip(names, largest, strict=True))))
    return [
        StoryTable(
            headers=("temperature", *names, "effective choices"),
            rows=rows,
            caption=f"The next token of {WRITER} after “{STORY}”; effective choices: e to the power of the entropy",
        ),
        FigureRow(blocks=[charts[0], charts[-1]], page_only=True),
    ]


def nucleus_size(models: Models, prompt: str, top_p: float) -> int:
    from regard.inference.generation.sampling import Sampling

    logits, _ = next_logits(models, prompt)
    return int((Sampling(top_p=top_p).filtered(logits[None])[0] > -math.inf).sum())


def nuclei(models: Models) -> list[StoryBlock]:
    """How many tokens top-p keeps, after two prompts."""
    rows = []
    for top_p in (0.5, TOP_P, 0.95, 0.99):
        rows.append((f"{top_p:g}", *(f"{nucleus_size(models, prompt, top_p):,}" for prompt in (STORY, CERTAIN))))
    logits, _ = next_logits(models, STORY)
    return [
        StoryTable(
            headers=("top-p", f"“{STORY} ...”", f"“{CERTAIN} ...”"),
            rows=rows,
            caption=f"Tokens in the nucleus, of {len(logits):,} in the vocabulary",
        ),
        Paragraph(
            text="Top-p keeps the fewest tokens whose probabilities reach p. Where the model is sure that is a "
            "handful, where it is not, hundreds: the filter adapts, which a fixed number of tokens (top-k) does not."
        ),
    ]


def generated(models: Models, **options: Any) -> GeneratedText:
    from regard.generation_config import GenerationConfig
    from regard.interpret.generation import Generation

    with models.use(WRITER) as loaded:
        generation = Generation(loaded, STORY, GenerationConfig(**options), candidates=False)
        for _ in generation.events():
            pass
    return generation.texts[0]


def samples(models: Models) -> list[StoryBlock]:
    """Texts with the deck's settings beside greedy search."""
    settings = {"temperature": TEMPERATURE, "top_p": TOP_P, "max_new_tokens": 20}
    runs = [(f"sampled, seed {seed}", generated(models, seed=seed, **settings)) for seed in range(3)]
    runs.append(("greedy", generated(models, temperature=0.0, max_new_tokens=20)))
    rows = [(name, " ".join(text.text.split())) for name, text in runs]
    return [
        beside_deck(
            [
                DeckRow("top-p", "0.9", f"{TOP_P:g}"),
                DeckRow("temperature", "0.8", f"{TEMPERATURE:g}"),
                DeckRow(
                    "parameters of the model", "6 billion", f"{_parameters(models) / 1e6:.0f} million", "GPT-J and ours"
                ),
            ]
        ),
        StoryTable(headers=("", f"“{STORY}” ..."), rows=rows, text_columns=[1]),
    ]


def _parameters(models: Models) -> int:
    with models.use(WRITER) as loaded:
        return sum(parameter.numel() for parameter in loaded.model.parameters())


def repeated_share(text: str) -> float:
    """The share of three-word sequences that occurred before in the text."""
    words = text.lower().split()
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return 1 - len(set(triples)) / len(triples) if triples else 0.0


def repetition_runs(models: Models) -> dict[str, str]:
    return {
        "greedy": generated(models, temperature=0.0, max_new_tokens=LONG).text,
        "four beams": generated(models, num_beams=4, max_new_tokens=LONG).text,
        "sampled": generated(models, temperature=TEMPERATURE, top_p=TOP_P, max_new_tokens=LONG).text,
    }


def repetition(models: Models) -> list[StoryBlock]:
    """Search repeats itself where sampling does not."""
    rows = [
        (name, f"{repeated_share(text):.0%}", " ".join(text.split())) for name, text in repetition_runs(models).items()
    ]
    return [
        StoryTable(
            headers=("method", "repeated", f"{LONG} tokens after “{STORY}”"),
            rows=rows,
            text_columns=[2],
            caption="Repeated: sequences of three words that occurred before in the text",
        )
    ]


def sampled_translations(models: Models, count: int = NUM_SAMPLES) -> Counter[str]:
    """Translations that are sampled from the model's own distribution, with their numbers."""
    import torch

    from regard.inference.generation.decoder import as_decoder
    from regard.inference.generation.sampling import Sampling, sample
    from regard.inference.translation.translator import translator_of

    with models.use(TRANSLATOR) as loaded:
        translator = translator_of(loaded)
        subwords = translator.subwords
        source = torch.tensor([subwords.encode_sources([STUDENT])[0]] * count)
        ids: list[list[int]] = [[] for _ in range(count)]
        decoder = as_decoder(translator.model)
        for tokens in sample(decoder, source, sampling=Sampling(), end=subwords.end, max_new_tokens=20):
            for row, token in zip(ids, tokens, strict=True):
                if token is not None and token != subwords.end:
                    row.append(token)
    return Counter(subwords.decode(row) for row in ids)


def probabilistic(models: Models) -> list[StoryBlock]:
    """Sampled translations: frequencies beside the model's probabilities."""
    counts = sampled_translations(models)
    found = {one.text: one.log_probability for one in translations(models, STUDENT, beams=10, count=10)}
    rows = [
        (text, f"{count}", f"{count / NUM_SAMPLES:.1%}", f"{math.exp(found[text]):.1%}" if text in found else "")
        for text, count in counts.most_common(6)
    ]
    rows.append(
        (f"{len(counts) - 6} others", str(NUM_SAMPLES - sum(count for _, count in counts.most_common(6))), "", "")
    )
    return [
        StoryTable(
            headers=("translation", "times", "frequency", "probability of the model"),
            rows=rows,
            caption=f"{NUM_SAMPLES} samples of “{STUDENT}” at temperature 1",
        ),
        Paragraph(
            text="Sampling draws each translation as often as the model finds it probable. Even the best one has a "
            "small share, since synonyms divide the probability between them. For translation one wants the best; for "
            "a story, variety."
        ),
    ]


def three_ways(models: Models) -> list[StoryBlock]:
    """The three choices that the deck names, on one sentence."""
    counts = sampled_translations(models, 1)
    first, best = (translations(models, STUDENT, beams=beams)[0] for beams in (1, 5))
    rows = [
        ("greedy", "the likeliest token at each step", first.text, f"{math.exp(first.log_probability):.1%}"),
        ("beam search", "the best of several prefixes", best.text, f"{math.exp(best.log_probability):.1%}"),
        ("probabilistic", "a token at random, by its probability", next(iter(counts)), ""),
    ]
    return [
        StoryTable(headers=("choice", "what it takes", f"“{STUDENT}”", "probability"), rows=rows, text_columns=[1, 2])
    ]
