"""Chapter: Self-attention, heads and masks."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter, CodeBlock, Computed, Exercise, LiveView, Prose
from regard.lessons.course.chapters import self_attention_answers as answers
from regard.lessons.course.chapters import self_attention_examples as examples

CHAPTER = Chapter(
    name="self-attention",
    title="Self-attention, heads and masks",
    summary="Queries, keys and values of one sentence, several heads side by side, and the mask that hides the future.",
    parts=(
        Prose(
            "A recurrent network reads a sentence word by word, and whatever it wants to know about an earlier word "
            "has to survive in its state. Attention removed that bottleneck between two sentences. Self-attention "
            "uses the same idea inside one sentence: every word looks at every other word directly, all at once, and "
            "no recurrence is left.\n\nEach token has a vector x. Three learned matrices W^Q, W^K and W^V turn it "
            "into a query, a key and a value. The query belongs to the word that pays attention, the key to the word "
            "that is looked at, and the value is what is passed on. A query that points in the same direction as a "
            "key has a large product with it: two words that are relevant to each other end up with aligned vectors "
            "and a high score, unrelated words with a low one. Softmax turns the scores of a word into weights that "
            "sum to 1, and the new vector of the word is the average of all values with these weights. Attention is a "
            "weighted average, nothing more.",
            heading="Every word looks at every word",
            spec=("D1", "D2", "D8"),
        ),
        Prose(
            "For a whole sentence the queries are the rows of Q, the keys those of K, the values those of V, and the "
            "formula is Attention(Q, K, V) = softmax(QK^T / √d_k) V. The product QK^T has a row and a column for "
            "every token: the attention matrix. The division keeps the scores small when vectors are wide. Without it "
            "the softmax would be almost one-hot at the beginning of training, where its gradient is close to zero.",
            heading="In matrix form",
            spec=("D2", "D3"),
        ),
        Computed("dimensions", "The deck's sizes beside ours", examples.dimensions, spec=("D3", "D4")),
        Exercise(
            "scale",
            "The vectors of a head are 64 wide. By which number are its scores divided?",
            ("4", "8", "64"),
            answers.answer_scale,
            spec=("D3",),
        ),
        Prose(
            "The deck follows the four words “The car is blue” through one head. Here are the same steps with the "
            "numbers of a trained model: products of a query with all keys, the division by 8, the softmax, and the "
            "sum of the weighted values. The deck writes that v_k is multiplied by s_k,i and summed to z_k; the value "
            "has the index of the word that is looked at, so the sum is z_k = Σ_i s_k,i v_i.",
            heading="“The car is blue”",
        ),
        Computed("car-is-blue", "“The car is blue”, number by number", examples.car_is_blue, spec=("D11", "D2", "D8")),
        Exercise(
            "tiny-weights",
            "How many of the weights of all heads in layer 1 are below 0.01 for this sentence?",
            ("Almost none: below 5%", "Some: between 5% and 50%", "Most: above 50%"),
            answers.answer_tiny,
            spec=("D11",),
        ),
        Prose(
            "One head is one way of looking. A layer has several, each with its own three matrices, so that a word "
            "can follow its verb, its subject and its neighbor at the same time, and so that each way of looking can "
            "have its own representation. Each head computes its own average Z. The averages of all heads are "
            "concatenated and multiplied by one more learned matrix, W^O, which mixes them into a vector as wide as "
            "the input.\n\nThe deck draws this as five steps for the two words “Thinking Machines”. Below are all "
            "five with a real model.",
            heading="Several heads: “Thinking Machines”",
            spec=("D5", "D6"),
        ),
        Computed("five-steps", "The five steps of multi-head attention", examples.five_steps, spec=("D5", "D4", "D1")),
        Exercise(
            "concatenation",
            "Four tokens, six heads that are 64 wide. What shape do the concatenated outputs of the heads have?",
            ("4 x 64", "4 x 384", "24 x 64"),
            answers.answer_concatenation,
            spec=("D4", "D5"),
        ),
        CodeBlock(
            "five-steps-in-python",
            "import regard\n\n"
            'figure = regard.figure("Thinking Machines", model="regard-bert", ablation=False)\n'
            'attention = figure.box("encoder.attention").in_layer(1)\n'
            'print(attention["weights"].shape, attention["z"].shape, attention["concatenated"].shape)\n'
            "print(attention.difference)  # between the formulas and the model",
            title="Every tensor of the five steps",
        ),
        LiveView(
            "multi-head",
            "figure",
            {"text": examples.THINKING, "model": examples.ENCODER, "ablation": False},
            route={"box": "encoder.attention", "tensor": "z"},
            title="The same in Figure 1: choose a tensor and a head",
            spec=("D5", "J1"),
        ),
        Prose(
            "Nothing in the formula knows where a word stands. If the words change places, the rows of Q, K and V "
            "change places, and so do the rows of the result: every word keeps its vector. Self-attention by itself "
            "reads a set. The next chapter adds vectors for positions; here they are taken away.",
            heading="A set, not a sequence",
        ),
        Exercise(
            "shuffle",
            "The position vectors are removed and the words are read in reverse order. What happens to the vector of "
            "“car”?",
            ("Nothing, up to rounding", "It changes a little, because its neighbors are others"),
            answers.answer_order,
            spec=("D10",),
        ),
        Computed("order", "The same words in another order", examples.order, spec=("D10",)),
        Prose(
            "“The animal didn't cross the street because it was too tired.” What is too tired? A model that has to "
            "predict words profits from knowing, and some of its heads find out. The deck shows one head that "
            "connects “it” with “animal”, a second one that connects it with “tired”, and then all heads at once, "
            "which tell nothing.",
            heading="What does “it” refer to?",
        ),
        Exercise(
            "animal",
            f"Among all heads of {examples.DECODER}, how much of the attention of “it” goes to “animal” in the head "
            "where it is most?",
            ("Less than 20%", "20% to 50%", "More than 50%"),
            answers.answer_animal,
            spec=("D7",),
        ),
        Computed("coreference", "“it”: one head, two heads, all heads", examples.coreference, spec=("D7", "D6")),
        LiveView(
            "one-head",
            "look",
            {"text": examples.ANIMAL, "model": examples.DECODER, "layer": 5, "head": 3},
            route={"layer": "5", "heads": "3", "lock": "r8"},
            title="One head",
            spec=("D7",),
        ),
        LiveView(
            "every-head",
            "look",
            {"text": examples.ANIMAL, "model": examples.COREFERENCE[1], "layer": 7},
            route={"layer": "7", "heads": "all", "lock": "r10"},
            title="All heads of a layer, each in its color",
            spec=("D7", "L3"),
        ),
        Exercise(
            "all-heads",
            f"In how many of the heads of {examples.COREFERENCE[1]} is “animal” the word to which “it” attends most?",
            ("In a few: below 15%", "In many: 15% to 60%", "In most: above 60%"),
            answers.answer_all_heads,
            spec=("D7", "L3"),
        ),
        Computed("all-heads-counted", "What all heads look at", examples.all_heads, spec=("L3", "D7")),
        Prose(
            "A decoder predicts the next word, and in training it sees the whole sentence at once. Without a "
            "precaution, each word would simply read its successor. The mask prevents that: scores of later words are "
            "set to -∞, so that the softmax gives them a weight of exactly 0. The decks draw both kinds beside each "
            "other, and so do we: the same scores with and without the mask.",
            heading="Masked self-attention",
        ),
        Exercise(
            "first-row",
            "With the mask, what is the weight that the first token gives to itself?",
            ("About 1 / number of tokens", "It depends on its query and key", "1"),
            answers.answer_first_row,
            spec=("D9",),
        ),
        Computed("masked", "Self-attention and masked self-attention", examples.masked_beside_plain, spec=("D9",)),
        Exercise(
            "last-row",
            "Which row of the map does the mask leave as it is?",
            ("The first", "The one in the middle", "The last"),
            answers.answer_last_row,
            spec=("D9",),
        ),
        CodeBlock(
            "maps",
            'regard look "The car is blue" --model regard-gpt --layer 1 --head 0\n'
            'regard look "The car is blue" --model regard-bert --layer 1 --head 0',
            "shell",
            title="A map with a mask and one without",
        ),
        Prose(
            "The deck asks as an exercise to compare all this with the encoder-decoder attention of recurrent models. "
            "A Transformer that translates contains all kinds, so they can be compared side by side.",
            heading="Beside encoder-decoder attention",
        ),
        Computed(
            "compared", "Three kinds of attention in one translator", examples.beside_encoder_decoder, spec=("D12",)
        ),
        Exercise(
            "cross-shape",
            "The source has S tokens, the decoder has read T. What shape does a map of the encoder-decoder attention "
            "have?",
            ("S x S", "T x S", "T x T"),
            answers.answer_cross_shape,
            spec=("D12",),
        ),
    ),
    reading=("vaswani2017", "alammar2018transformer", "vig2019", "clark2019"),
)
