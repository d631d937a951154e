"""Chapter: The Transformer."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter, CodeBlock, Computed, Exercise, LiveView, Prose
from regard.lessons.course.chapters import transformer_answers as answers
from regard.lessons.course.chapters import transformer_examples as examples

SHORT = {"text": "Ich bin da.", "ablation": False}  # for pictures that do not depend on the text

CHAPTER = Chapter(
    name="transformer",
    title="The Transformer",
    summary="Figure 1 box by box: embeddings, positions, attention, Add & Norm, feed-forward layers, encoder, decoder.",
    parts=(
        Prose(
            "In 2017 “Attention Is All You Need” kept the encoder and the decoder of a translator and threw out what "
            "was inside. There is no recurrence and no convolution: the encoder is a stack of layers of "
            "self-attention and small feed-forward networks, the decoder the same with one more attention to the "
            "encoder. All words of a sentence are processed at the same time, so training no longer has to wait for "
            "word after word.\n\nThe paper's Figure 1 shows all of it. Below it is drawn for a model that Regard has "
            "trained, with the numbers of a sentence in every box. Press a box, or press Play and follow one token "
            "from the bottom to the top. The rest of this chapter goes through the boxes in the order in which the "
            "token meets them.",
            heading="The famous diagram",
            spec=("E1", "E15"),
        ),
        LiveView(
            "figure-1",
            "figure",
            {"text": examples.MARKET, "ablation": False},
            title="Figure 1 with the numbers of a sentence",
            spec=("E15", "E1", "E6", "J5"),
        ),
        Computed("sizes", "The deck's sizes beside ours", examples.sizes, spec=("E1", "E2", "E8", "E9", "P12")),
        Computed("variants", "Models that came from it", examples.variants, spec=("E16",)),
        Prose(
            "A token enters as a one-hot vector: as many numbers as the vocabulary has tokens, all 0 except one. "
            "Multiplying it by the embedding matrix W^E gives the embedding e, which is short and dense. A sentence "
            "may have any length up to a maximum that is fixed beforehand; one deck says 20 words.",
            heading="Input embedding",
        ),
        Computed("one-hot", "One-hot times matrix", examples.one_hot, spec=("E2",)),
        Prose(
            "All tokens enter at once, and attention has no notion of order, as the previous chapter showed. So a "
            "vector that depends only on the position t is added to each embedding: psi'(e_t) = psi(e_t) + p_t. Its "
            "entries are sines and cosines of t at different speeds, p_t[2k] = sin(w_k t) and p_t[2k+1] = cos(w_k t) "
            "with w_k = 1 / 10000^(2k/d) and k from 0. The first dimensions turn quickly, the last ones hardly move, "
            "like the hands of a clock. The vector is added, not appended, so it has the width of the "
            "embedding.\n\nThe deck lists five criteria that an encoding of positions has to meet. They can be "
            "measured.",
            heading="Positional encoding",
            spec=("E3",),
        ),
        Exercise(
            "position-zero",
            "What is the encoding of position 0?",
            ("All zeros", "All ones", "0, 1, 0, 1, ..."),
            answers.answer_position_zero,
            spec=("E3",),
        ),
        Computed("five-criteria", "Five criteria, measured", examples.five_criteria, spec=("E3", "E4", "P4", "P5")),
        Exercise(
            "shift",
            "Positions 0 and 5, and positions 40 and 45: which pair of encodings is farther apart?",
            ("Neither: the distance depends on the shift alone", "40 and 45", "0 and 5"),
            answers.answer_shift,
            spec=("E4",),
        ),
        LiveView(
            "positions-128",
            "figure",
            SHORT,
            route={"mode": "positions", "width": "128", "count": "50", "layout": "interleaved"},
            title="128 dimensions, 50 positions, interleaved (the figure of S2)",
            spec=("E5", "J4"),
        ),
        LiveView(
            "positions-512",
            "figure",
            SHORT,
            route={"mode": "positions", "width": "512", "count": "20", "layout": "halves"},
            title="512 dimensions, 20 positions, in halves (the figure of S4)",
            spec=("E5", "J4", "P5"),
        ),
        LiveView(
            "positions-64",
            "figure",
            SHORT,
            route={"mode": "positions", "width": "64", "count": "10", "layout": "interleaved"},
            title="64 dimensions, 10 positions (the second figure of S4)",
            spec=("E5", "J4"),
        ),
        Prose(
            "After the attention, the input of the sublayer is added to its output, and the sum is normalized: Add & "
            "Norm. The addition is a residual connection. It gives gradients a straight way through the whole stack, "
            "and a sublayer only has to compute what should change.\n\nLayer norm takes one vector at a time, "
            "subtracts its mean and divides by its standard deviation. It uses no other example of the batch, so it "
            "computes the same in training and in use. One deck stops here; the paper on layer norm and the other "
            "deck give each dimension a learned gain and bias.\n\nThe paper normalizes after each addition "
            "(post-norm). Many later models, GPT-2 among them, normalize before each sublayer instead (pre-norm), "
            "which trains more easily. Figure 1 above says which of the two it draws.",
            heading="Add & Norm",
            spec=("E6",),
        ),
        Computed("layer-norm", "Layer norm on one vector", examples.layer_norm, spec=("E7", "P6")),
        Exercise(
            "norm",
            "Layer norm (without gain and bias) of 2, 4, 6 and of 4, 8, 12: how do the results compare?",
            ("They are equal", "The second is twice the first"),
            answers.answer_norm,
            spec=("E7",),
        ),
        Prose(
            "The second sublayer is a network of two linear layers with a ReLU between them. It is applied to each "
            "position by itself, with the same weights everywhere: attention moves information between positions, the "
            "feed-forward network processes it in place.",
            heading="Feed-forward network",
        ),
        Exercise(
            "feed-forward",
            "The vector of the first word changes. Which outputs of the feed-forward network change?",
            ("Only that of the first word", "Those of all words"),
            answers.answer_feed_forward,
            spec=("E8",),
        ),
        Computed("position-wise", "Position by position", examples.feed_forward, spec=("E8",)),
        Prose(
            "An encoder is a stack of such layers, six in the paper, all built alike and each with its own weights. "
            "Their number is a choice of the designer and has nothing to do with the length of the sentence. One deck "
            "draws two layers of encoder and decoder with every addition and norm. The drawing below does so for a "
            "real model: a line from bottom to top, the residual stream, and beside it the sublayers that read from "
            "it and add to it.",
            heading="The stack and its residual stream",
        ),
        Computed("stack", "Alike, but not shared", examples.stack, spec=("E9",)),
        LiveView(
            "residual-stream",
            "figure",
            {"text": examples.MARKET, "ablation": False},
            route={"mode": "stream", "layers": "2"},
            title="Two layers, drawn along the residual stream",
            spec=("E9", "E6", "E10"),
        ),
        Computed("residual-lengths", "How much each sublayer adds", examples.residual_lengths, spec=("E6", "E9")),
        Prose(
            "A decoder layer has three sublayers, each with Add & Norm: masked self-attention over the words so far, "
            "attention to the encoder, and the feed-forward network. The output of the top encoder layer is turned "
            "into keys and values, and all decoder layers use it; the queries come from the sublayer below.",
            heading="The decoder",
        ),
        Exercise(
            "memory",
            "From where does the second decoder layer take its keys and values?",
            ("From the second encoder layer", "From the first decoder layer", "From the top encoder layer"),
            answers.answer_memory,
            spec=("E10",),
        ),
        Computed("keys-and-values", "One memory for all layers", examples.top_of_the_encoder, spec=("E10",)),
        Exercise(
            "first-input",
            "What does the decoder read at the first time step?",
            ("The first word of the source", "A token that marks the beginning", "The first word of the translation"),
            answers.answer_first_input,
            spec=("E11",),
        ),
        Computed("decoding-loop", "Time step after time step", examples.decoding_loop, spec=("E11",)),
        LiveView(
            "translation",
            "translate",
            {"model": examples.TRANSLATOR, "source": [examples.STUDENT], "num_beams": 1, "steps": True},
            title="The same, step by step, with its attention",
            spec=("E11", "J3"),
        ),
        Computed("cross-attention", "Where each step looks", examples.cross_map, spec=("E10", "J3")),
        Prose(
            "The decoder's last vector becomes a word in three steps: a linear layer with a logit for every token, a "
            "softmax, and the index of the largest probability. The next chapter shows that taking the largest is "
            "only one of the choices.",
            heading="Linear, softmax, argmax",
        ),
        Computed("final-layer", "From a vector to a word", examples.final_layer, spec=("E12",)),
        Prose(
            "In training the output is compared with the right translation. The deck does it with a vocabulary of six "
            "words: every target is a one-hot vector, the loss is the cross-entropy, and it is summed over the "
            "outputs.",
            heading="Training with six words",
        ),
        Exercise(
            "initial-loss",
            "Two sentences with seven outputs in all, six words, a model that gives each word the same probability. "
            "What is the summed cross-entropy?",
            ("ln 6", "7 ln 6", "7 times 6"),
            answers.answer_initial_loss,
            spec=("E13",),
        ),
        Computed("one-hot-target", "Targets and loss", examples.one_hot_target, spec=("E13",)),
        Computed("six-words", "Train it now", examples.six_words, slow=True, spec=("E13",)),
        CodeBlock("train-six-words", "regard lesson six-words --epochs 60", "shell", title="The same in the terminal"),
        Prose(
            "Which of these parts matter? Regard can take them out of a trained model and measure what is lost.",
            heading="Without its parts",
        ),
        Exercise(
            "removed",
            "Which part does a trained translator miss most?",
            ("The causal mask", "The positions", "The scaling of the scores", "The residual connections"),
            answers.answer_removed,
            slow=True,
            spec=("E6", "E15"),
        ),
        Computed("removed-parts", "One part removed at a time", examples.removed_parts, slow=True, spec=("E15", "E6")),
        CodeBlock(
            "figure-in-python",
            "import regard\n\n"
            'figure = regard.figure("Je suis étudiant", model="regard-fr-en", ablation=False)\n'
            "for box in figure.model_boxes:\n    print(box.part, box.title, box.in_layer(1).difference)",
            title="Every box, and how well its formula reproduces the model",
        ),
    ),
    reading=("vaswani2017", "alammar2018transformer", "ba2016", "he2016", "xiong2020"),
)
