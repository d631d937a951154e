"""Chapter: BERT and its two tasks."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter, CodeBlock, Computed, Exercise, LiveView, Prose
from regard.lessons.course.chapters import bert_examples as bert

CHAPTER = Chapter(
    name="bert",
    title="BERT and its two tasks",
    summary="A masked word and the next sentence: what BERT reads, predicts and learns from.",
    parts=(
        Prose(
            "A language model that reads from left to right cannot use what comes after a word. ELMo runs two such "
            "models in opposite directions and joins them at the end. BERT, a stack of Transformer encoders, lets "
            "every token attend to both sides in every layer. But then it must not be asked for a word that it can "
            "see: so some of the words are hidden, and the model is trained to restore them.\n\n"
            "The training needs no labels, only text. One deck calls this self-supervised, another semi-supervised and "
            "a third unsupervised; they mean the same thing, and self-supervised is the usual name (erratum P14).",
            heading="Both sides at once",
            spec=("F6", "F7", "P14"),
        ),
        Computed("two-steps", "Pretrain once, train many times", bert.two_steps, spec=("F6",)),
        Computed("sizes", "How large BERT is", bert.sizes, spec=("F1", "P12")),
        Prose(
            "BERT reads pieces of words. Its vocabulary has 30,522 of them; a word that is not among them is spelled "
            "with several. [CLS] is put before every text: its vector stands for the whole text in classification. "
            "[SEP] ends each sentence. The tokenizer gives every piece its number, and the deck prints the first "
            "numbers of five film reviews, which any faithful implementation must reproduce.",
            heading="From text to numbers",
            spec=("F9",),
        ),
        LiveView(
            "tokens",
            "tokenize",
            {"source": [bert.WHOLE], "pair": "The actors had no script.", "model": bert.MODEL, "embeddings": True},
            route={"token": "7"},
            title="A pair of sentences as BERT's input",
            spec=("F5", "F9"),
        ),
        Computed("ids", "The five rows of the deck", bert.ids, spec=("F9", "P15")),
        Exercise(
            "pieces",
            f"How many pieces does {bert.MODEL} need for the word improvisation?",
            ("one", "two", "three or more"),
            bert.answer_pieces,
            spec=("F9",),
        ),
        Prose(
            "Three vectors are added for every token. The token embedding says what it is. The segment embedding says "
            "whether it belongs to sentence A or B. The position embedding says where it stands; unlike the sinusoids "
            "of the Transformer it is learned, which is why BERT cannot read more than 512 tokens. The sum is "
            "normalized and goes into the first layer.",
            heading="Token + segment + position",
            spec=("F5",),
        ),
        Computed("embeddings", "The three embeddings and their sum", bert.embeddings, spec=("F5",)),
        Exercise(
            "separator",
            "A pair of sentences has two [SEP] tokens. Which of their three embeddings differ?",
            ("only the position", "segment and position", "all three"),
            bert.answer_separator,
            spec=("F5",),
        ),
        Prose(
            "As in the paper, 15% of the tokens are chosen in each text, anew each time it is read. If all of them "
            "became [MASK], the model would learn that only [MASK] needs thought, and a text without masks, which is "
            "what it gets in use, would be foreign to it. So in the paper 80% of the chosen tokens become [MASK], 10% "
            "another token and 10% stay as they are. The model does not know which of the visible tokens were chosen "
            "and must keep all of them honest.",
            heading="Task 1: masked language modeling",
            spec=("F2", "P10"),
        ),
        Computed("masking", "The same sentence with four seeds", bert.masking, spec=("F2", "P10")),
        Exercise(
            "mask-count",
            "Of 100 tokens of text, how many does the model see as [MASK], on average?",
            ("15", "12", "80"),
            bert.answer_mask_count,
            spec=("F2",),
        ),
        Prose(
            "At a chosen position the output vector goes through one more layer and is multiplied with the embedding "
            "matrix, the same one that the input used: this gives one number for each entry of the vocabulary, and "
            "softmax makes probabilities of them. The loss is the negative logarithm of the probability of the "
            "original token, and only chosen positions count.",
            spec=("F2",),
        ),
        Computed("loss", "The loss, position by position", bert.loss, spec=("F2",)),
        Exercise(
            "loss-positions",
            "Which positions of that sentence enter the loss?",
            ("all of them", "only the chosen ones", "only those that became [MASK]"),
            bert.answer_loss_positions,
            spec=("F2",),
        ),
        LiveView(
            "fill", "fill", {"text": bert.SKIT, "model": bert.MODEL}, title="What stands behind the mask?", spec=("F3",)
        ),
        Computed("skit", "The figure of the deck, computed", bert.skit, spec=("F3",)),
        Exercise(
            "top",
            f"Which of these words does {bert.MODEL} find likeliest in the skit?",
            ("music", "improvisation", "zyzzyva"),
            bert.answer_top,
            spec=("F3",),
        ),
        Prose(
            "Words alone do not teach how sentences belong together. So BERT reads pairs: in half of them sentence B "
            "follows sentence A in the same document, in the other half B comes from somewhere else. A classifier on "
            "the [CLS] vector tells the two apart. Sentence boundaries and document boundaries are therefore part of "
            "the training data.",
            heading="Task 2: next sentence prediction",
            spec=("F4", "F8", "P3"),
        ),
        Computed("examples", "From text to training pairs", bert.examples, spec=("F4", "F8")),
        Exercise(
            "follows",
            f'A: "{bert.PAIRS[0][0]}" Which continuation does the model prefer? First: "{bert.PAIRS[0][1]}" '
            f'Second: "{bert.PAIRS[1][1]}"',
            ("the first", "the second"),
            bert.answer_follows,
            spec=("F4",),
        ),
        Computed("next-sentence", "Four pairs", bert.next_sentence, spec=("F4", "P3")),
        Exercise(
            "order",
            f"“{bert.PAIRS[2][0]}” is followed by “{bert.PAIRS[2][1]}” What happens to the probability "
            "when the two change places?",
            ("it hardly changes", "it drops", "it rises"),
            bert.answer_order,
            spec=("F4",),
        ),
        Prose(
            "Both tasks are trained at once: each row is a pair with masked tokens, and the loss is the sum of "
            "the two.",
            heading="Both together",
            spec=("F7",),
        ),
        Computed("both-losses", "The two losses of a pair", bert.both_losses, spec=("F7",)),
        Exercise(
            "embedding-share",
            "Which part of BERT base's parameters is the matrix of token embeddings?",
            ("about 2%", "about 20%", "about 60%"),
            bert.answer_embedding_share,
            spec=("F1",),
        ),
        CodeBlock(
            "python",
            "import regard\n\n"
            f'print(regard.tokenize("{bert.WHOLE}"))\n'
            f'print(regard.fill("{bert.SKIT}", targets=["improvisation", "music", "silence"]))\n'
            'print(regard.next_sentence("He opened the letter.", "It was from his brother."))',
            title="In Python",
        ),
        CodeBlock(
            "shell",
            f'regard fill "{bert.SKIT}" --top 5',
            language="shell",
            title="On the command line",
        ),
    ),
    reading=("devlin2019", "liu2019", "alammar2018bert"),
)
