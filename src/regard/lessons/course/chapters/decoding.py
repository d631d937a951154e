"""Chapter: Decoding."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter, CodeBlock, Computed, Exercise, LiveView, Prose
from regard.lessons.course.chapters import decoding_answers as answers
from regard.lessons.course.chapters import decoding_examples as examples

CHAPTER = Chapter(
    name="decoding",
    title="Decoding",
    summary="From probabilities to a text: greedy search, beam search and sampling with temperature and top-p.",
    parts=(
        Prose(
            "A trained decoder gives a probability to every token of the vocabulary, at every step. It does not say "
            "which token to take. The probability of a whole sentence is the product of the probabilities of its "
            "tokens, each given those before it, and there are far too many sentences to try them all. One deck names "
            "three ways to choose: greedy, beam search and probabilistic decoding. This chapter runs all three on the "
            "same models.",
            heading="A distribution is not yet a text",
            spec=("E14",),
        ),
        Computed("three-ways", "Three choices, one sentence", examples.three_ways, spec=("E14", "I5")),
        Prose(
            "Greedy search takes the likeliest token, feeds it back and goes on. It is fast and cannot repent: a "
            "token that looks best now may lead to a sentence that is not. In the table, watch the second choice of "
            "the first steps.",
            heading="Greedy search",
        ),
        Exercise(
            "greedy",
            "Is the sentence that takes the likeliest token at each step also the likeliest sentence?",
            ("Yes, since every factor of the product is as large as possible", "Not always"),
            answers.answer_greedy,
            spec=("E14",),
        ),
        Computed("greedy-steps", "Greedy, step by step", examples.greedy, spec=("E14", "E12")),
        Prose(
            "Beam search keeps several prefixes alive. At each step it continues all of them with all tokens, ranks "
            "the results by the sum of the logarithms of their probabilities, and keeps the best. Prefixes that end "
            "become hypotheses, and the best hypothesis wins. With one beam it is greedy search, with more it looks "
            "further and costs more.",
            heading="Beam search",
        ),
        Exercise(
            "one-beam",
            "What does a beam search with a single beam find?",
            ("The same as greedy search", "Something better than greedy search"),
            answers.answer_one_beam,
            spec=("E14",),
        ),
        Computed("beam-widths", "More and more beams", examples.beam_widths, spec=("E14",)),
        LiveView(
            "beam-tree",
            "decode",
            {"text": examples.MEET, "model": examples.TRANSLATOR, "num_beams": 3},
            title="The tree of a search with three beams",
            spec=("E14", "J3"),
        ),
        Exercise(
            "length",
            "Without a length penalty, which translation does a beam search prefer?",
            ("The shorter one", "The longer one"),
            answers.answer_length,
            spec=("E14",),
        ),
        Computed("length-penalties", "Short or long", examples.length_penalties, spec=("E14",)),
        LiveView(
            "steps",
            "translate",
            {"model": examples.TRANSLATOR, "source": [examples.MEET], "num_beams": 5, "steps": True},
            title="The best translation, with its attention at every step",
            spec=("E14", "J3"),
        ),
        CodeBlock(
            "search",
            f'regard decode "{examples.STUDENT}" --temperature 0\nregard decode "{examples.STUDENT}" --num-beams 3',
            "shell",
            title="Both searches in the terminal",
        ),
        Prose(
            "The third way is to draw the next token at random, each with its probability. The result is different "
            "every time and reads more like what people write, because people do not always choose the most probable "
            "word either. Two numbers control it, and the demonstration page in the deck has a slider for "
            "each.\n\nTemperature divides the logits before the softmax. Below 1 the distribution becomes sharper, "
            "above 1 flatter, and close to 0 it is greedy search. Top-p cuts the long tail: only the fewest tokens "
            "whose probabilities together reach p stay, and one of these is drawn.",
            heading="Sampling: temperature and top-p",
        ),
        Exercise(
            "temperature",
            "The temperature goes from 1 to 0.5. What happens to the probability of the likeliest token?",
            ("It rises", "It falls"),
            answers.answer_temperature,
            spec=("I5",),
        ),
        Computed("temperatures", "One distribution, four temperatures", examples.temperatures, spec=("I5",)),
        Exercise(
            "nucleus",
            "Top-p is 0.9. After which text does it keep fewer tokens?",
            (f"“{examples.STORY}”", f"“{examples.CERTAIN}”"),
            answers.answer_nucleus,
            spec=("I5",),
        ),
        Computed("nuclei", "How many tokens top-p keeps", examples.nuclei, spec=("I5",)),
        Computed("samples", "The deck's settings", examples.samples, spec=("I5", "E14")),
        LiveView(
            "candidates",
            "generate",
            {"prompt": examples.STORY, "model": examples.WRITER, "max_new_tokens": 20, "candidates": True},
            title="What else could have been drawn at every token",
            spec=("I5",),
        ),
        Exercise(
            "samples-of-a-translation",
            f"A translation of “{examples.STUDENT}” is sampled at temperature 1, again and again. How often is it the "
            "most probable one?",
            ("In less than 5% of the samples", "In 5% to 50%", "In more than half of them"),
            answers.answer_samples,
            spec=("E14",),
        ),
        Computed("probabilistic", "Sampled translations", examples.probabilistic, spec=("E14",)),
        Prose(
            "Search finds probable sentences, and for translation that is what one wants. A language model that "
            "continues a story shows the other side: the most probable continuation of a sentence is often a sentence "
            "that was there before.",
            heading="When the most probable text is dull",
        ),
        Exercise(
            "repetition",
            f"{examples.WRITER} continues a story with {examples.LONG} tokens. Which text repeats itself most?",
            ("The one that was searched for", "The one that was sampled"),
            answers.answer_repetition,
            slow=True,
            spec=("E14", "I5"),
        ),
        Computed(
            "repetition-measured", "Search and sampling on a story", examples.repetition, slow=True, spec=("E14", "I5")
        ),
        CodeBlock(
            "sampling-in-python",
            "import regard\n\n"
            f'for seed in range(3):\n    result = regard.generate("{examples.STORY}", max_new_tokens=15, seed=seed)\n'
            "    print(result.texts[0].text)",
            title="Three samples",
        ),
    ),
    reading=("vaswani2017", "wu2016", "holtzman2020", "alammar2018transformer"),
)
