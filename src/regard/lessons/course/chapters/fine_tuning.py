"""Chapter: Fine-tuning and features."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter, CodeBlock, Computed, Exercise, LiveView, Prose
from regard.lessons.course.chapters import fine_tuning_examples as examples
from regard.lessons.course.data_sets import reviews

REVIEWS = [list(row) for row in reviews()]

CHAPTER = Chapter(
    name="fine-tuning",
    title="Fine-tuning and features",
    summary="One small layer per task on top of a pretrained model, or its vectors as features of another classifier.",
    parts=(
        Prose(
            "A pretrained model is a starting point, as a network trained on ImageNet is for pictures. There are two "
            "ways to use it. Either its weights stay as they are and its vectors become the features of a small "
            "classifier; or a new layer is put on top and everything is trained a little further on the labeled "
            "examples, which is called fine-tuning. The deck draws the line in the same place: as soon as BERT's own "
            "parameters change, it is fine-tuning.",
            heading="Two ways to use a pretrained model",
            spec=("G7", "G8"),
        ),
        Prose(
            "Start with the first way, as the deck does: embed film reviews with a frozen model, keep the vector of "
            "the first token, and fit logistic regression. The deck uses DistilBERT and 2,000 reviews of SST-2. The "
            f"model here is {examples.MODEL}, which is much smaller, and the 64 reviews are our own: expect less.",
            heading="Features: reviews, vectors, logistic regression",
            spec=("H1", "H2"),
        ),
        Computed("sst2", "The data of the deck", examples.sst2_rows, spec=("H2",)),
        LiveView(
            "walk",
            "features",
            {"data": REVIEWS, "model": examples.MODEL},
            route={"step": "all"},
            title="All stages: sentences, tokens, ids, padding, mask, hidden states, slice, classifier",
            spec=("H1", "H3", "H5", "P8"),
        ),
        Computed("pipeline", "Every stage beside the deck", examples.pipeline, spec=("H2", "H3", "H5", "P8", "P15")),
        Prose(
            "Read the accuracy as a mean with its spread. With so few texts a single split says little: one review "
            "more or less in the right place moves it by several points. Cross-validation tests every text once and "
            "shows by how much the result depends on the split.",
            spec=("H2",),
        ),
        Exercise(
            "one-answer",
            "A quarter of the 64 reviews is the test set of one split. By how many points does one more correct answer "
            "raise the accuracy?",
            ("0.2", "1.6", "6.25"),
            examples.answer_split,
            spec=("H2",),
        ),
        Exercise(
            "slice",
            "The slice [:, 0, :] keeps one vector per text. Which share of the hidden states does it throw away?",
            ("more than 90%", "about half", "less than 10%"),
            examples.answer_cells,
            spec=("H3",),
        ),
        Exercise(
            "mask",
            "The code of the deck pads all texts to the same length and passes no attention mask. What happens to the "
            "vectors?",
            ("nothing, padding is ignored anyway", "they change: every token attends to the padding"),
            examples.answer_mask,
            spec=("P8",),
        ),
        Exercise(
            "pooling",
            "Instead of the vector of [CLS] one can average the vectors of all tokens. Which gives the higher accuracy "
            "in cross-validation here?",
            ("[CLS]", "the mean"),
            examples.answer_pooling,
            spec=("H1", "G7"),
        ),
        Exercise(
            "baseline",
            "Which accuracy does a classifier reach that always gives the most common label?",
            ("0%", "about 50%", "about 75%"),
            examples.answer_guess,
            spec=("H2",),
        ),
        CodeBlock(
            "features-code",
            "import regard\n"
            "from regard.lessons.course.data_sets import reviews\n\n"
            'print(regard.features(data=reviews(), model="regard-embed", pooling="mean"))',
            title="Another model is another name",
            spec=("H4",),
        ),
        Prose(
            "The last layer is not the only one with vectors. The lower layers know more about the words themselves, "
            "the upper ones more about what the model was trained to predict. The deck asks which layer to use for the "
            "word Help, and prints a table: the sum or the concatenation of the last four layers is best for finding "
            "names. The choice can be left to the data.",
            heading="Which layer?",
            spec=("H6", "P9"),
        ),
        Computed("layer-table", "The table of the deck", examples.layer_table, spec=("H6", "P9")),
        LiveView(
            "layers",
            "layers",
            {"train": REVIEWS, "task": "classify", "model": examples.MODEL},
            title="Every layer, scored on the reviews",
            slow=True,
            spec=("H6",),
        ),
        Prose(
            "Now the second way. Each task needs one new layer and nothing else. A sentence or a pair is classified "
            "from the vector of [CLS]. Names are found by classifying the vector of every token. For an answer inside "
            "a text two vectors are learned, one that marks the start and one that marks the end. The rest of the "
            "network is the same for all of them.",
            heading="One small layer per task",
            spec=("G1", "G2", "G3", "G4", "G8"),
        ),
        Computed("heads", "The layers in numbers", examples.heads, spec=("G8",)),
        Exercise(
            "head-size",
            f"How many new parameters does a classifier with two classes need on the [CLS] vector of {examples.MODEL}?",
            ("fewer than a thousand", "about a hundred thousand", "as many as the encoder"),
            examples.answer_head,
            spec=("G8",),
        ),
        Computed("data-sets", "The data sets of the deck", examples.data_sets, spec=("G1", "G2", "G3", "G4")),
        Prose(
            "The deck's first example is a mail filter, its joke is a toxicity detector. Both are classifiers of one "
            "text. Here are their examples with our own models, whatever they answer.",
            heading="Spam, and a toxic comment",
            spec=("G5", "G6"),
        ),
        Computed("spam", "Is it spam?", examples.spam, spec=("G5",)),
        Computed("toxic", "Is it toxic?", examples.toxic, spec=("G6",)),
        Prose(
            "Does it pay to change the encoder? The features of a frozen model were never meant for sentiment, and "
            "training turns them that way; the bars say by how much. Frozen features keep one advantage: they are "
            "computed once and serve any number of tasks.",
            heading="Frozen or fine-tuned",
            spec=("G7",),
        ),
        Computed("frozen-or-tuned", "Measured on SST-2", examples.frozen_or_tuned, spec=("G7",)),
        Computed(
            "frozen-or-tuned-here",
            "The same on the built-in reviews, trained now",
            examples.frozen_or_tuned_here,
            slow=True,
            spec=("G7", "G10"),
        ),
        Prose(
            "What made BERT famous were results. On SQuAD a model reads a paragraph and marks the answer to a "
            "question; exact match (EM) counts answers that agree to the letter, F1 the words in common. The deck "
            "describes version 2 of the data, in which some questions have no answer, but its scores are those of "
            "version 1.1 (erratum P11).",
            heading="The leader board",
            spec=("G3", "G11", "P11"),
        ),
        Computed("squad", "The scores that the deck prints", examples.squad, spec=("G11", "P11")),
        Exercise(
            "human",
            "By how much does the single BERT model exceed human performance in F1 on SQuAD v1.1?",
            ("not at all", "by less than one point", "by more than five points"),
            examples.answer_human,
            spec=("G11",),
        ),
        CodeBlock(
            "fit",
            "import regard\n"
            "from regard.lessons.course.data_sets import reviews\n\n"
            "tuned = regard.fit(reviews(), epochs=1)\n"
            'print(tuned.predict(["a funny film"]))',
            title="Fine-tune in Python: the exercise of the deck",
            spec=("G10",),
        ),
    ),
    reading=(
        "devlin2019",
        "sanh2019",
        "socher2013",
        "rajpurkar2016",
        "tjong2003",
        "wang2018",
        "zellers2018",
        "alammar2019",
    ),
)
