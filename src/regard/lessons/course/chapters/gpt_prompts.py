"""Parts of the chapter on GPT: the prompts that the decks print, with the answers printed there beside a model's."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

from regard.checkpoints.models import Models
from regard.events import Event, Progress
from regard.lessons.course.chapter import ExerciseAnswer
from regard.lessons.course.chapters.gpt_model import LAW, MODEL
from regard.render.story import BarChart, Paragraph, StoryBlock, StoryTable

# S2's transcript with GPT-3.
TRANSCRIPT = (
    ("What is your favorite animal?", "My favorite animal is a dog."),
    ("Why?", "Because dogs are loyal and friendly."),
    (
        "What are two reasons that a dog might be in a bad mood?",
        "Two reasons that a dog might be in a bad mood are if it is hungry or if it is hot.",
    ),
    ("How many eyes does a giraffe have?", "A giraffe has two eyes."),
    ("How many legs does a frog have?", "A frog has four legs."),
    ("Are there any animals with three legs?", "No, there are no animals with three legs."),
    ("Why don't animals have three legs?", "Animals don't have three legs because they would fall over."),
)


class PrintedPrompt(NamedTuple):
    """A prompt of a deck, which model answered it there, and how the printed answer begins."""

    deck: str
    model: str
    prompt: str
    answer: str


PRINTED = (
    PrintedPrompt("S1", "GPT-3", "Recite the first law of robotics", LAW),
    PrintedPrompt(
        "S2",
        "GPT-3",
        "Please write a short op-ed around 500 words. Keep the language simple and concise. Focus on why humans have "
        "nothing to fear from AI.",
        "I am not a human. I am a robot. A thinking robot. ...",
    ),
    PrintedPrompt(
        "S2",
        "PaLM 540B",
        "Jennifer looked out her window and sees a really cool cloud below her. She unbuckles her seatbelt and heads "
        "to "
        "the bathroom. Is Jennifer probably traveling more than 300 miles per hour relative to the earth?",
        "300 miles per hour is about 480 km/h. This is about the speed of a commercial airplane. Clouds are usually "
        "below "
        'airplanes, so Jennifer is probably on an airplane. The answer is "yes".',
    ),
    PrintedPrompt(
        "S2",
        "GPT-J-6B",
        "This is a story about me and my brothers",
        "and sisters. We've been together for thirty-six years. My mother and I grew up in rural Pennsylvania. ...",
    ),
)
ANSWER_TOKENS, TEXT_TOKENS = 24, 40
NUMBERS = ("two", "three", "four", "six", "eight")
GIRAFFE, SPIDER = "A giraffe has", "A spider has"


def transcript(models: Models) -> Generator[Event, None, list[StoryBlock]]:
    """Each printed question after the printed questions and answers before it, as GPT-3 read them."""
    rows, before = [], ""
    with models.use(MODEL) as loaded:
        for number, (question, printed) in enumerate(TRANSCRIPT):
            prompt = f"{before}Q: {question}\nA:"
            answer = _continue(loaded.model, loaded.tokenizer, prompt, ANSWER_TOKENS, stop=("\n",))
            rows += [("Q", question), ("GPT-3, as printed", printed), (MODEL, answer or "(an empty line)")]
            before = f"{prompt} {printed}\n"
            yield Progress(stage="asking", done=number + 1, total=len(TRANSCRIPT), unit="questions")
    return [
        StoryTable(headers=("", "S2's transcript"), rows=rows, text_columns=[1]),
        Paragraph(
            text=f"{MODEL} continues the whole transcript so far, likeliest token first, up to the end of the line. "
            "It has "
            "learned the form (a line that follows A:), hardly the content."
        ),
    ]


def printed_prompts(models: Models) -> Generator[Event, None, list[StoryBlock]]:
    rows = []
    with models.use(MODEL) as loaded:
        for number, one in enumerate(PRINTED):
            text = _continue(loaded.model, loaded.tokenizer, one.prompt, TEXT_TOKENS)
            rows += [(f"prompt ({one.deck})", one.prompt), (f"{one.model}, as printed", one.answer), (MODEL, text)]
            yield Progress(stage="continuing", done=number + 1, total=len(PRINTED), unit="prompts")
    headers = ("", f"the likeliest {TEXT_TOKENS} tokens of {MODEL} below the printed text")
    return [StoryTable(headers=headers, rows=rows, text_columns=[1])]


def _continue(model: object, tokenizer: object, prompt: str, tokens: int, stop: tuple[str, ...] = ()) -> str:
    from regard.generation_config import GenerationConfig
    from regard.interpret.generation import generate

    config = GenerationConfig(max_new_tokens=tokens, temperature=0, stop=list(stop))
    found = generate(model, tokenizer, prompt, config=config)  # type: ignore[arg-type]
    return " ".join(found.text.split())


def law_answer(models: Models) -> ExerciseAnswer:
    """Does the prompt make the law likelier for the small model?"""
    prompt = "Recite the first law of robotics\n\n"
    alone, asked = _log_probability(models, "", LAW), _log_probability(models, prompt, LAW)
    gain = asked - alone
    choice = 0 if gain > math.log(10) else 1 if gain > -math.log(10) else 2
    return ExerciseAnswer(
        choice,
        f"log p of the law is {alone:.1f} alone and {asked:.1f} after the prompt: the prompt makes it e to the "
        f"{gain:.1f} = "
        f"{math.exp(gain):.3g} times as likely. Words such as robotics raise robot; knowing the law is another matter.",
    )


def _log_probability(models: Models, prompt: str, text: str) -> float:
    from regard.inference.causal_lm import CausalScorer, ScoredIds
    from regard.nn.training import evaluation_mode

    with models.use(MODEL) as loaded, evaluation_mode(loaded.model):
        scorer = CausalScorer.of(loaded.model, loaded.tokenizer, doing="a chapter")
        before = [*scorer.opening, *scorer.tokenizer.encode(prompt, add_special_tokens=False).ids]
        ids = scorer.tokenizer.encode(text, add_special_tokens=False).ids
        return scorer.score([ScoredIds([*before, *ids], len(before))], greedy=False)[0].log_probability


def _numbers(models: Models, opening: str) -> dict[str, float]:
    """The probability of each number word, among these words."""
    scores = {word: _log_probability(models, f"Q: How many?\nA: {opening}", f" {word}") for word in NUMBERS}
    total = sum(map(math.exp, scores.values()))
    return {word: math.exp(value) / total for word, value in scores.items()}


def parrot(models: Models) -> list[StoryBlock]:
    return [
        BarChart.of_probabilities(f"{opening} ... eyes or legs: shares of five number words", list(found.items()))
        for opening in (GIRAFFE, SPIDER)
        for found in [_numbers(models, opening)]
    ]


def parrot_answer(models: Models) -> ExerciseAnswer:
    found = _numbers(models, SPIDER)
    best = max(found, key=lambda word: found[word])
    listed = ", ".join(f"{word} {value:.0%}" for word, value in found.items())
    return ExerciseAnswer(
        0 if best == "eight" else 1,
        f"After {SPIDER!r}: {listed}. The likeliest is {best!r}. A continuation is chosen for how often such words "
        "follow "
        "such words, and nothing in the objective checks it against spiders.",
    )


def nucleus_sizes(models: Models) -> dict[float, int]:
    """How many tokens a nucleus holds after the demo's prompt."""
    import torch

    from regard.inference.generation.text_generator import TextGenerator
    from regard.nn.training import evaluation_mode

    with models.use(MODEL) as loaded, evaluation_mode(loaded.model):
        generator = TextGenerator(loaded.model, loaded.tokenizer)
        ids = generator.encode_prompt(PRINTED[3].prompt, max_new_tokens=1).ids
        logits, _ = generator.decoder.start(torch.tensor([ids], device=generator.device))
        probabilities = (logits[0].double() / 0.8).softmax(-1).sort(descending=True).values.cumsum(-1)
    return {share: int((probabilities < share).sum()) + 1 for share in (0.5, 0.9, 0.99)}


def nucleus_answer(models: Models) -> ExerciseAnswer:
    sizes = nucleus_sizes(models)
    limits = (10, 100, 1000)
    choice = next((index for index, limit in enumerate(limits) if sizes[0.9] < limit), len(limits))
    listed = ", ".join(f"top-p {share:g}: {count:,}" for share, count in sizes.items())
    return ExerciseAnswer(choice, f"Tokens that may follow {PRINTED[3].prompt!r} at temperature 0.8: {listed}.")
