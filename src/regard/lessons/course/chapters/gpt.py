"""Chapter: GPT and what one asks of it."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter, CodeBlock, Computed, Exercise, LiveView, Prose
from regard.lessons.course.chapters import gpt_benchmarks, gpt_model, gpt_prompts

DECODER = """\
Take the Transformer's decoder, remove the attention to an encoder, and train it to predict the next token of ordinary
text: that is the OpenAI Transformer of 2018, later called GPT. The deck gives the reason for the choice: Transformers
keep hold of words that are far back better than LSTMs do, and a decoder is a language model already.

The mask is what makes it one. Each token may attend to itself and to the tokens before it, never to those after, so
the state of every token is a summary of a prefix, and one pass over a text trains as many predictions as it has
tokens."""

PROBABILITY = """\
A language model assigns a probability to a text, p(W0, W1, ..., Wn). A GPT does it by the chain rule: the probability
of the first token, times that of the second given the first, and so on. Each factor is one softmax over the
vocabulary. Generation samples these factors one after the other; scoring reads them off for a text that is given."""

INPUTS = """\
A pretrained GPT reads one sequence of tokens. Its paper uses it for other tasks without changing the model: the input
is rewritten as one or several sequences with a start token, a delimiter between texts and an extract token at the end,
and one linear layer reads the state of the extract token. Classification needs one sequence; entailment puts the
delimiter between premise and hypothesis; similarity has no order, so both orders are read; multiple choice reads one
sequence per answer and compares."""

ASKING = """\
Large models are used without any fine-tuning: the task is written into the prompt, and the continuation is the answer.
The decks print four such prompts. A transcript in the form Q:, A: makes an answer the likeliest continuation of a
question. An instruction ("Recite the first law of robotics") asks for a recitation. The Guardian had GPT-3 write an
essay from three sentences of instructions. And PaLM was shown questions with the steps of their solutions, so that it
writes such steps itself before the answer, which is called chain-of-thought prompting.

Beside each printed answer stands what our own small model writes. It has far fewer parameters than GPT-3 and was
trained for minutes: the difference is the point."""

DEMO = """\
The deck shows a demo page for GPT-J: a list of prompts, a prompt box, two sliders (top-p 0.9, temperature 0.8), a
button and a result. The studio's Generation view has the same controls and also shows what the model could have
written instead at every token. Press a token to see its candidates, move a slider to see which of them remain."""

BENCHMARKS = """\
How good is such a model? The deck prints four benchmarks. Each asks which of several continuations is the likeliest,
so no answer has to be generated: LAMBADA asks for the last word of a passage, Winogrande for the noun that a pronoun
means, HellaSwag for the ending of a story, PIQA for the way to do something in the physical world. The models of the
table differ in size by a factor of 65, and the scores follow the size.

Two cautions. A percentage means little without the one that guessing gets. And the deck's table does not say whether
log-probabilities were divided by the length of the endings."""

COST = """\
The deck gives two numbers for GPT-3: 175 billion parameters, and more than 4.6 million dollars for training it on
V100s. Both follow from a few facts by arithmetic: a training token costs about six operations per parameter, and a GPU
does a known number of operations per second, of which a fraction is reached."""

CHARACTERISTICS = """\
The deck names four characteristics of large language models: attention mechanisms; embeddings that depend on the
context; training for many tasks at once on huge amounts of text; and parallel processing instead of reading left to
right. The last one is true of training and of reading a prompt. Writing remains sequential: each token needs the one
before it."""

UNDERSTANDING = """\
Does a model that writes like this understand what it writes? The deck answers: it depends on what one means by
understanding.

Bender and her coauthors call such models stochastic parrots: they join word forms by how often they occurred together,
without reference to what the words mean. Searle's Chinese room (1980) is the older form of the doubt: a person who
follows rules for Chinese symbols gives the right answers and understands no Chinese.

Dietterich (2019) proposes to ask what a system can do. In his account a system understands to the extent that it links
the world with concepts, states and actions, which takes some knowledge of how the world works and of itself. So
understanding comes in degrees: most people know that water is wet and freezes, and some do not know that it conducts
electricity. The rational-agent view measures it by behavior: an agent perceives, has goals with utilities, and chooses
the action that it expects to serve them best; it understands what improves its choices.

Keep the caveat next to every generated text: it is likely, which does not make it true."""

CHAPTER = Chapter(
    name="gpt",
    title="GPT and what one asks of it",
    summary="A decoder that continues its prompt: its inputs, its probabilities, its benchmarks and its cost.",
    parts=(
        Prose(DECODER, heading="A decoder alone", spec=("I2",)),
        Computed("architecture", "The OpenAI Transformer beside regard-gpt", gpt_model.architecture, spec=("I2",)),
        Computed("mask", "The same words with and without the mask", gpt_model.mask_drawn, spec=("I2",)),
        LiveView(
            "masked-attention",
            "look",
            {"text": gpt_model.LAW, "model": gpt_model.MODEL},
            title="Masked self-attention, every head",
            spec=("I2",),
        ),
        Exercise(
            "entries",
            f"How many weights of one attention map are above 0 when regard-gpt reads {gpt_model.ORDERED!r}?",
            ("all of them", "about half: the lower triangle with the diagonal", "only the diagonal"),
            gpt_model.mask_answer,
            spec=("I2",),
        ),
        Prose(PROBABILITY, heading="The probability of a text", spec=("I1",)),
        Computed("sequence", "The chain rule, token by token", gpt_model.sequence_probability, spec=("I1",)),
        Exercise(
            "order",
            "Which of the two sentences, made of the same words, does regard-gpt find likelier?",
            (gpt_model.ORDERED, gpt_model.SCRAMBLED),
            gpt_model.order_answer,
            spec=("I1",),
        ),
        CodeBlock(
            "score",
            'import regard\n\ntexts = ["The dog chased the cat.", "The chased cat dog the."]\n'
            'print(regard.score(texts, model="regard-gpt"))',
            title="Score texts",
            spec=("I1",),
        ),
        Prose(INPUTS, heading="Other tasks, the same model", spec=("G9",)),
        Computed("transformations", "Start, delimiter, extract", gpt_model.transformations_drawn, spec=("G9",)),
        Computed("token-rows", "The same as real token rows", gpt_model.token_rows, spec=("G9",)),
        Exercise(
            "passes",
            "How many sequences does the model read to compare two texts for similarity?",
            ("1", "2", "4"),
            gpt_model.passes_answer,
            spec=("G9",),
        ),
        Prose(ASKING, heading="What one asks of it", spec=("I3",)),
        Computed(
            "questions",
            "The printed questions to GPT-3, and our model",
            gpt_prompts.transcript,
            slow=True,
            spec=("I3",),
        ),
        Computed("prompts", "The printed prompts, and our model", gpt_prompts.printed_prompts, slow=True, spec=("I3",)),
        Exercise(
            "first-law",
            'Does the prompt "Recite the first law of robotics" make the law likelier for regard-gpt?',
            ("yes, by more than a factor of 10", "hardly: within a factor of 10", "no, it makes it less likely"),
            gpt_prompts.law_answer,
            spec=("I3",),
        ),
        Prose(DEMO, heading="The demo page", spec=("I4", "I5")),
        LiveView(
            "demo",
            "generate",
            {
                "prompt": gpt_prompts.PRINTED[3].prompt,
                "model": gpt_model.MODEL,
                "top_p": 0.9,
                "temperature": 0.8,
                "max_new_tokens": 60,
                "candidates": True,
            },
            title="Top-p 0.9, temperature 0.8",
            spec=("I4", "I5"),
        ),
        Exercise(
            "nucleus",
            "After the demo's prompt, how many of the 16,384 tokens does top-p 0.9 keep at temperature 0.8?",
            ("fewer than 10", "10 to 99", "100 to 999", "1,000 or more"),
            gpt_prompts.nucleus_answer,
            spec=("I4", "I5"),
        ),
        CodeBlock(
            "generate",
            'regard generate "This is a story about me and my brothers" --top-p 0.9 --max-new-tokens 30',
            language="shell",
            title="The demo page as one line",
            spec=("I4",),
        ),
        Prose(BENCHMARKS, heading="Benchmarks", spec=("I6",)),
        Computed("benchmarks", "GPT-J's table with our row", gpt_benchmarks.table, spec=("I6",)),
        Computed("sample", "The first examples, computed now", gpt_benchmarks.sample, slow=True, spec=("I6",)),
        Exercise(
            "piqa",
            "PIQA has two endings per question. Is regard-gpt better than guessing?",
            ("no, or not measurably", "yes, measurably, but by a few points", "yes, by more than 20 points"),
            gpt_benchmarks.piqa_answer,
            spec=("I6",),
        ),
        Prose(COST, heading="What it costs", spec=("I7",)),
        Computed("cost", "GPT-3's parameters and price", gpt_benchmarks.cost, spec=("I7",)),
        Exercise(
            "years",
            "How long would one V100 train GPT-3, at the speed that this price assumes?",
            ("about 3.6 years", "about 36 years", "about 360 years", "about 3,600 years"),
            gpt_benchmarks.years_answer,
            spec=("I7",),
        ),
        CodeBlock(
            "cost-line",
            "regard cost gpt3 --tokens 300B --gpu v100 --utilization 0.224 --price 1.5",
            language="shell",
            title="The same on the command line",
            spec=("I7",),
        ),
        Prose(CHARACTERISTICS, heading="Four characteristics", spec=("I8",)),
        Computed("characteristics", "Each of them, seen in our model", gpt_model.parallel, spec=("I8",)),
        Prose(UNDERSTANDING, heading="Parrot or understanding?", spec=("I9",)),
        Computed("numbers", "How many eyes, how many legs", gpt_prompts.parrot, spec=("I9",)),
        Exercise(
            "spider",
            '"A spider has ...": is "eight" the likeliest of two, three, four, six and eight for regard-gpt?',
            ("yes", "no"),
            gpt_prompts.parrot_answer,
            spec=("I9",),
        ),
    ),
    reading=(
        "radford2018",
        "radford2019",
        "brown2020",
        "chowdhery2022",
        "wei2022",
        "wang2021",
        "paperno2016",
        "sakaguchi2020",
        "zellers2019",
        "bisk2020",
        "bender2021",
        "searle1980",
        "dietterich2019",
    ),
)
