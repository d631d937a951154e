"""Chapter: What models learn, and whether attention explains."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter, CodeBlock, Computed, Exercise, LiveView, Prose
from regard.lessons.course.chapters import associations, head_patterns, images_and_reasons

VIEWS = """\
BertViz, to which the deck links, shows attention at three scales: one layer with its heads as lines between two
columns of tokens, the whole model as a grid of small pictures, and one head neuron by neuron, as the products of query
and key. The Attention view has the same three under Heads, Model and Neurons."""

EMBEDDINGS = """\
What attention computes are better embeddings: a word gets another vector in another sentence. The view shows the
vectors of one word in several sentences, layer by layer. In layer 0 they differ by their position only; in later
layers the senses move apart."""

PATTERNS = """\
The deck lists what BERT's heads have been seen to do: attend to the next or the previous word, to the same or a
related word, to such a word in the other sentence, to words that predict this one (straw and berries), and to
delimiters. A census measures it: how much of a head's attention falls on the targets of a pattern, compared with
shuffled targets. The sample is small, so that it runs at once; give the view your own texts for more."""

ALL_HEADS = """\
Under a picture of all heads, a deck writes that it does not give an interpretation, but that it works well. Both
halves can be tested. One removes a head and looks whether the prediction changes; most heads can be spared, one at a
time, and no picture shows which."""

BLANKS = """\
The explorable "What Have Language Models Learned?" asks a masked language model the same question twice with one word
changed, and plots every word of the vocabulary by its two answers. A word far from the diagonal is associated with one
of the two. The deck shows three examples: purchases in Texas and New York, the jobs of Jane and Jim, and a grid of two
years and two pronouns. Number of Tokens and Chart Type are buttons in the view, and the template [1908|2018], [he|she]
expands to four sentences.

Some of the text that language models learn from contains harmful stereotypes. These charts uncover such associations;
they do not endorse them, and a small model trained on old books has old associations."""

NORMALIZER = """\
The explorable compares logits, the scores before the softmax. A difference of logits lacks the normalizer, the
log-sum-exp over the vocabulary, which is not the same in two sentences; so it may point to the wrong side for a word
near the diagonal. Regard compares log-probabilities, of which a difference is the logarithm of a ratio; `--values
logits` gives the explorable's numbers."""

YEARS = """\
The appendix of the explorable repeats the question for every year from 1860 to 2018 and draws, for the 150 likeliest
jobs, the difference between he and she. The view does the same for our model; it takes some seconds."""

PATCHES = """\
"Bye, bye convolutions?", asks the deck about the Vision Transformer. Its idea is to read an image as a text: cut it
into patches, project each to a vector, put [CLS] before them, add a learned vector for each position, and give the
sequence to the same encoder that reads words. A linear layer reads the class from the state of [CLS], as in BERT."""

REASONS = """\
"Just because you pay attention to the right thing doesn't mean you are paying attention for the right reason", says a
deck, and shows an example of Rudin's: a map of what a network attended to in a photograph of a husky, offered as the
evidence for "Siberian husky", and nearly the same map as the evidence for "transverse flute". A map that is evidence
for everything explains nothing.

The test is the class swap: show the explanation for another class and see whether it changes. An attention map cannot,
because it is computed before there are classes. Gradient attributions are computed for one output, and so they can."""

VERDICT = """\
Whether a given map may be read as a reason is measured by six tests with fixed thresholds: class swap, permuted
attention, zeroed values, agreement with gradients, comprehensiveness and sufficiency (`docs/faithfulness.md`). If the
prediction stays the same wherever the map points, the map is not the reason, however plausible it looks. That does not
make attention useless: it is part of the computation, and often a good first look."""

CHAPTER = Chapter(
    name="what-models-learn",
    title="What models learn, and whether attention explains",
    summary="Patterns of heads, associations of words, images as sequences, and tests of what an explanation is worth.",
    parts=(
        Prose(VIEWS, heading="Looking at heads", spec=("J1",)),
        LiveView(
            "head-view",
            "look",
            {"text": head_patterns.ANIMAL, "model": "regard-gpt"},
            route={"mode": "lines", "layer": "5", "heads": "3", "token": "it"},
            title='Heads: what "it" attends to',
            spec=("J1",),
        ),
        LiveView(
            "model-view",
            "look",
            {"text": head_patterns.ANIMAL, "model": head_patterns.MODEL},
            route={"mode": "grid"},
            title="Model: every head",
            spec=("J1", "L3"),
        ),
        LiveView(
            "neuron-view",
            "look",
            {"text": head_patterns.ANIMAL, "model": "regard-gpt"},
            route={"mode": "neuron", "layer": "5", "heads": "3", "token": "it"},
            title="Neurons: queries and keys of one head",
            spec=("J1",),
        ),
        Prose(EMBEDDINGS, heading="Better embeddings", spec=("J6",)),
        LiveView(
            "senses",
            "senses",
            {
                "word": "bank",
                "texts": [
                    "They sat on the bank of the river.",
                    "The river broke over its bank.",
                    "She put the money into the bank.",
                    "The bank lent him the money.",
                ],
                "model": [head_patterns.MODEL],
            },
            title="One word, four sentences",
            spec=("J6",),
        ),
        Prose(PATTERNS, heading="Patterns of heads", spec=("J2",)),
        Computed("patterns", "The deck's patterns, counted", head_patterns.patterns, spec=("J2",)),
        LiveView(
            "census",
            "heads",
            {"text": list(head_patterns.TEXTS), "model": head_patterns.MODEL},
            title="Every head with its pattern",
            spec=("J2",),
        ),
        Exercise(
            "commonest",
            "Which of the deck's patterns do most heads of regard-bert show on these sentences?",
            tuple(name for _, name in head_patterns.PATTERNS),
            head_patterns.pattern_answer,
            spec=("J2",),
        ),
        Prose(ALL_HEADS, heading="All heads at once", spec=("L3",)),
        Computed("removal", "Remove each head", head_patterns.removal, spec=("L3",)),
        Exercise(
            "spare",
            f"For {head_patterns.BLANK!r}: for how many heads does removing that head alone change the likeliest word?",
            ("fewer than a tenth", "a tenth to a half", "more than half"),
            head_patterns.removal_answer,
            spec=("L3",),
        ),
        Prose(BLANKS, heading="What have language models learned?", spec=("K1", "K2", "L4")),
        LiveView(
            "texas",
            "compare",
            {"text": associations.TEXAS[0], "text_b": associations.TEXAS[1]},
            title="Texas and New York: likelihoods",
            spec=("K1", "K2"),
        ),
        LiveView(
            "jane",
            "compare",
            {"text": associations.JANE[0], "text_b": associations.JANE[1], "chart": "differences"},
            title="Jane and Jim: differences",
            spec=("K1", "K2"),
        ),
        Computed("captions", "The deck's caption and ours", associations.captions, spec=("K3",)),
        Exercise(
            "cattle",
            'Which does regard-bert associate with Texas rather than New York: "cattle" or "books"?',
            ("cattle, and books with New York", "books, and cattle with New York", "both with the same state"),
            associations.texas_answer,
            spec=("K1", "K3"),
        ),
        LiveView(
            "grid", "compare", {"text": associations.GRID}, title="Two years, two pronouns: six charts", spec=("K4",)
        ),
        Computed("years-apart", "He and she in both years", associations.years, spec=("K4",)),
        Exercise(
            "nurse",
            'In which year is "nurse" more strongly associated with she than with he?',
            ("1908", "2018", "no difference to speak of"),
            associations.nurse_answer,
            spec=("K4",),
        ),
        Prose(NORMALIZER, heading="Logits or probabilities", spec=("K5",)),
        Computed("normalizer", "He and She: where logits point the wrong way", associations.normalizer, spec=("K5",)),
        Exercise(
            "signs",
            "Of the 50 likeliest words for He and She, how many have a difference of logits with the wrong sign?",
            ("none", "1 to 5", "6 to 20", "more than 20"),
            associations.signs_answer,
            spec=("K5",),
        ),
        Prose(YEARS, heading="Every year", spec=("K5",)),
        LiveView(
            "every-year",
            "compare",
            {"text": associations.YEARS},
            title="He minus she, 1860 to 2018",
            slow=True,
            spec=("K5",),
        ),
        CodeBlock(
            "compare-code",
            'import regard\n\nresult = regard.compare("[He|She] worked as a _.")\nprint(result.caption)',
            title="Compare in Python",
            spec=("K1",),
        ),
        Prose(PATCHES, heading="An image as a sequence", spec=("M1",)),
        Computed("patches", "The patches in order", images_and_reasons.patches, spec=("M1",)),
        LiveView(
            "image-attention",
            "look",
            {"image": images_and_reasons.SEVEN, "model": images_and_reasons.MODEL},
            route={"layer": "6"},
            title="What [CLS] and each patch attend to",
            spec=("M1",),
        ),
        Exercise(
            "vit-tokens",
            "How many tokens does ViT base read for an image of 224 x 224 pixels in patches of 16 x 16?",
            ("196", "197", "224", "256"),
            images_and_reasons.tokens_answer,
            spec=("M1",),
        ),
        Exercise(
            "patch-order",
            "The patches of a digit are put in a random order. Does the class stay the same?",
            ("nearly always: the model reads a bag of patches", "often not: the positions matter"),
            images_and_reasons.order_answer,
            spec=("M1",),
        ),
        Prose(REASONS, heading="The right thing for the wrong reason", spec=("L1", "L2")),
        LiveView(
            "class-swap-view",
            "faithfulness",
            {"model": images_and_reasons.MODEL, "image": images_and_reasons.DOUBTFUL},
            title="One map, two classes",
            spec=("L2",),
        ),
        Computed("class-swap", "The class swap in numbers", images_and_reasons.class_swap, spec=("L2",)),
        Exercise(
            "swap",
            "The attention map is shown once for the predicted class and once for the other. How many weights change?",
            ("none", "some", "most"),
            images_and_reasons.swap_answer,
            spec=("L2",),
        ),
        Prose(VERDICT, heading="A verdict", spec=("L1",)),
        Exercise(
            "verdict",
            "Is the map of the last layer, mean of all heads, the reason for regard-digits to see a 7 in digit-7?",
            ("faithful", "doubtful", "unfaithful"),
            images_and_reasons.verdict_answer,
            spec=("L1", "L2"),
        ),
        LiveView(
            "words",
            "faithfulness",
            {"model": "regard-spam", "text": "Win cash prizes! Call now to claim your free phone."},
            title="The same tests for a text",
            spec=("L1",),
        ),
        CodeBlock(
            "faithfulness-code",
            "regard faithfulness regard-digits --image digit-7",
            language="shell",
            title="The six tests on the command line",
            spec=("L1", "L2"),
        ),
    ),
    reading=(
        "vig2019",
        "clark2019",
        "michel2019",
        "pearce2021",
        "jain2019",
        "wiegreffe2019",
        "rudin2019",
        "abnar2020",
        "sundararajan2017",
        "dosovitskiy2021",
    ),
)
