"""The papers and articles of the course, each once; chapters refer to them by key."""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    """`arxiv` is the number of the preprint; `venue` says where a text without one appeared."""

    authors: str
    title: str
    year: int
    arxiv: str = ""
    venue: str = ""


BIBLIOGRAPHY = {
    # Recurrent models and attention
    "sutskever2014": Paper(
        "Sutskever, Vinyals and Le", "Sequence to Sequence Learning with Neural Networks", 2014, "1409.3215"
    ),
    "cho2014": Paper(
        "Cho et al.",
        "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
        2014,
        "1406.1078",
    ),
    "hochreiter1997": Paper(
        "Hochreiter and Schmidhuber", "Long Short-Term Memory", 1997, venue="Neural Computation 9(8)"
    ),
    "bahdanau2015": Paper(
        "Bahdanau, Cho and Bengio",
        "Neural Machine Translation by Jointly Learning to Align and Translate",
        2015,
        "1409.0473",
    ),
    "luong2015": Paper(
        "Luong, Pham and Manning",
        "Effective Approaches to Attention-based Neural Machine Translation",
        2015,
        "1508.04025",
    ),
    "alammar2018nmt": Paper(
        "Alammar",
        "Visualizing A Neural Machine Translation Model (Mechanics of Seq2seq Models With Attention)",
        2018,
        venue="jalammar.github.io",
    ),
    # Contextual embeddings
    "mikolov2013": Paper(
        "Mikolov et al.", "Efficient Estimation of Word Representations in Vector Space", 2013, "1301.3781"
    ),
    "pennington2014": Paper(
        "Pennington, Socher and Manning", "GloVe: Global Vectors for Word Representation", 2014, venue="EMNLP 2014"
    ),
    "peters2018": Paper("Peters et al.", "Deep contextualized word representations", 2018, "1802.05365"),
    "howard2018": Paper(
        "Howard and Ruder", "Universal Language Model Fine-tuning for Text Classification", 2018, "1801.06146"
    ),
    # The Transformer
    "vaswani2017": Paper("Vaswani et al.", "Attention Is All You Need", 2017, "1706.03762"),
    "ba2016": Paper("Ba, Kiros and Hinton", "Layer Normalization", 2016, "1607.06450"),
    "he2016": Paper("He et al.", "Deep Residual Learning for Image Recognition", 2016, "1512.03385"),
    "xiong2020": Paper("Xiong et al.", "On Layer Normalization in the Transformer Architecture", 2020, "2002.04745"),
    "alammar2018transformer": Paper("Alammar", "The Illustrated Transformer", 2018, venue="jalammar.github.io"),
    "raffel2020": Paper(
        "Raffel et al.",
        "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        2020,
        "1910.10683",
    ),
    "dosovitskiy2021": Paper(
        "Dosovitskiy et al.",
        "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
        2021,
        "2010.11929",
    ),
    # Decoding
    "holtzman2020": Paper("Holtzman et al.", "The Curious Case of Neural Text Degeneration", 2020, "1904.09751"),
    "wu2016": Paper(
        "Wu et al.",
        "Google's Neural Machine Translation System: Bridging the Gap between Human and Machine Translation",
        2016,
        "1609.08144",
    ),
    # BERT
    "devlin2019": Paper(
        "Devlin et al.",
        "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        2019,
        "1810.04805",
    ),
    "liu2019": Paper("Liu et al.", "RoBERTa: A Robustly Optimized BERT Pretraining Approach", 2019, "1907.11692"),
    "sanh2019": Paper(
        "Sanh et al.",
        "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
        2019,
        "1910.01108",
    ),
    "alammar2018bert": Paper(
        "Alammar",
        "The Illustrated BERT, ELMo, and co. (How NLP Cracked Transfer Learning)",
        2018,
        venue="jalammar.github.io",
    ),
    "alammar2019": Paper(
        "Alammar", "A Visual Guide to Using BERT for the First Time", 2019, venue="jalammar.github.io"
    ),
    "socher2013": Paper(
        "Socher et al.",
        "Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank",
        2013,
        venue="EMNLP 2013",
    ),
    "rajpurkar2016": Paper(
        "Rajpurkar et al.", "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016, "1606.05250"
    ),
    "tjong2003": Paper(
        "Tjong Kim Sang and De Meulder",
        "Introduction to the CoNLL-2003 Shared Task: Language-Independent Named Entity Recognition",
        2003,
        "cs/0306050",
    ),
    "wang2018": Paper(
        "Wang et al.",
        "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding",
        2018,
        "1804.07461",
    ),
    "zellers2018": Paper(
        "Zellers et al.",
        "SWAG: A Large-Scale Adversarial Dataset for Grounded Commonsense Inference",
        2018,
        "1808.05326",
    ),
    # GPT
    "radford2018": Paper(
        "Radford et al.", "Improving Language Understanding by Generative Pre-Training", 2018, venue="OpenAI"
    ),
    "radford2019": Paper("Radford et al.", "Language Models are Unsupervised Multitask Learners", 2019, venue="OpenAI"),
    "brown2020": Paper("Brown et al.", "Language Models are Few-Shot Learners", 2020, "2005.14165"),
    "chowdhery2022": Paper("Chowdhery et al.", "PaLM: Scaling Language Modeling with Pathways", 2022, "2204.02311"),
    "wei2022": Paper(
        "Wei et al.", "Chain-of-Thought Prompting Elicits Reasoning in Large Language Models", 2022, "2201.11903"
    ),
    "wang2021": Paper(
        "Wang and Komatsuzaki",
        "GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model",
        2021,
        venue="EleutherAI",
    ),
    "paperno2016": Paper(
        "Paperno et al.", "The LAMBADA dataset: Word prediction requiring a broad discourse context", 2016, "1606.06031"
    ),
    "sakaguchi2020": Paper(
        "Sakaguchi et al.", "WinoGrande: An Adversarial Winograd Schema Challenge at Scale", 2020, "1907.10641"
    ),
    "zellers2019": Paper("Zellers et al.", "HellaSwag: Can a Machine Really Finish Your Sentence?", 2019, "1905.07830"),
    "bisk2020": Paper(
        "Bisk et al.", "PIQA: Reasoning about Physical Commonsense in Natural Language", 2020, "1911.11641"
    ),
    "bender2021": Paper(
        "Bender et al.",
        "On the Dangers of Stochastic Parrots: Can Language Models Be Too Big?",
        2021,
        venue="FAccT 2021",
    ),
    "searle1980": Paper("Searle", "Minds, brains, and programs", 1980, venue="Behavioral and Brain Sciences 3(3)"),
    "dietterich2019": Paper("Dietterich", 'What does it mean for a machine to "understand"?', 2019, venue="Medium"),
    # What models learn, and explanations
    "vig2019": Paper("Vig", "A Multiscale Visualization of Attention in the Transformer Model", 2019, "1906.05714"),
    "clark2019": Paper("Clark et al.", "What Does BERT Look At? An Analysis of BERT's Attention", 2019, "1906.04341"),
    "pearce2021": Paper("Pearce", "What Have Language Models Learned?", 2021, venue="PAIR Explorables"),
    "jain2019": Paper("Jain and Wallace", "Attention is not Explanation", 2019, "1902.10186"),
    "wiegreffe2019": Paper("Wiegreffe and Pinter", "Attention is not not Explanation", 2019, "1908.04626"),
    "rudin2019": Paper(
        "Rudin",
        "Stop Explaining Black Box Machine Learning Models for High Stakes Decisions and Use Interpretable Models "
        "Instead",
        2019,
        "1811.10154",
    ),
    "abnar2020": Paper("Abnar and Zuidema", "Quantifying Attention Flow in Transformers", 2020, "2005.00928"),
    "sundararajan2017": Paper(
        "Sundararajan, Taly and Yan", "Axiomatic Attribution for Deep Networks", 2017, "1703.01365"
    ),
    "michel2019": Paper("Michel, Levy and Neubig", "Are Sixteen Heads Really Better than One?", 2019, "1905.10650"),
}
