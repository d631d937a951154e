"""One example of every verb: valid arguments and invalid arguments.

`MODEL`, `GPT` and so on stand for the tiny models' folders (see `test_interfaces.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["EXAMPLES", "Example"]


class Example(NamedTuple):
    good: dict[str, Any]
    bad: dict[str, Any] | None  # None: the verb takes no arguments
    error: str  # part of the message about `bad`


TRAINING: dict[str, Any] = {"settings": ["training.num_epochs=1"], "resume": True, "device": "cpu"}
TRANSLATION: dict[str, Any] = {
    "settings": [
        "training.num_epochs=1",
        "vocabulary.vocab_size=262",
        "model.hidden_size=8",
        "model.num_hidden_layers=1",
        "model.num_attention_heads=2",
        "model.intermediate_size=16",
    ],
    "resume": True,
    "device": "cpu",
}
EXAMPLES: dict[str, Example] = {
    "tokenize": Example(
        {"source": ["the film was good"], "pair": "they love it", "model": "MODEL", "embeddings": True},
        {"source": ["the film", "a day"], "pair": "they love it", "model": "MODEL"},
        "there are 2",
    ),
    "fill": Example(
        {"text": "the _ was good", "model": "MODEL", "top": 3}, {"text": "no blank", "model": "MODEL"}, "_ or [MASK]"
    ),
    "embed": Example(
        {"source": ["the film was good", "a day"], "model": "MODEL", "normalize": True},
        {"source": ["a day"], "model": "MODEL", "pooling": "none"},
        "name an output file",
    ),
    "index": Example(
        {"source": "LABELED", "output": "INDEXED", "model": "MODEL", "keep": ["label"]},
        {"source": "LABELED", "output": "INDEXED", "model": "MODEL", "keep": ["lable"]},
        "did you mean 'label'",
    ),
    "search": Example(
        {"source": ["the film was good", "a bad day", "the water"], "query": ["good day"], "model": "MODEL", "top": 2},
        {"source": ["the film was good", "a bad day"], "query": ["film"], "model": "MODEL", "rerank": "CLASSIFIER"},
        "cannot rerank",
    ),
    "rerank": Example(
        {"query": "good day", "source": ["the film was good", "a bad day"], "model": "RERANKER", "top": 1},
        {"query": "good day", "source": ["the film was good"], "model": "CLASSIFIER"},
        "cannot rerank",
    ),
    "duplicates": Example(
        {"source": ["the film was good", "a bad day", "the film was good"], "model": "MODEL", "threshold": 0.99},
        {"source": ["the film was good", "a bad day"], "model": "MODEL", "threshold": 1.5},
        "threshold is 1.5",
    ),
    "cluster": Example(
        {"source": ["the film was good", "a bad day", "a bad film", "the water"], "model": "MODEL", "num_clusters": 2},
        {"source": ["the film was good", "a bad day"], "model": "MODEL", "num_clusters": 5},
        "cannot form 5 clusters",
    ),
    "similarity": Example(
        {"image": "digit-7", "texts": ["a photo of a seven", "a dog"], "model": "CLIP"},
        {"image": "digit-7", "texts": ["a photo of a seven"], "model": "MODEL"},
        "similarity needs a model that compares images with texts, and this is a BERT model",
    ),
    "classify": Example(
        {"source": ["the film was good", "a bad day"], "labels": ["film", "day"], "model": "MODEL"},
        {"source": ["the film was good"], "labels": ["film", "day"], "model": "CLASSIFIER"},
        "needs an NLI model",
    ),
    "compare": Example(
        {"text": "he was a _", "text_b": "she was a _", "model": "MODEL", "top": 5},
        {"text": "[a|b] [c|d] [e|f] _", "model": "MODEL"},
        "at most two",
    ),
    "next": Example(
        {"first": "the film was good", "second": "they love it", "model": "MODEL"},
        {"first": "the film", "second": "", "model": "MODEL"},
        "the second is empty",
    ),
    "perplexity": Example(
        {"source": ["the film was good", "they love it"], "model": "GPT"},
        {"source": ["the film"], "model": "GPT", "stride": 99},
        "stride is 99",
    ),
    "generate": Example(
        {"prompt": "the film", "model": "GPT", "max_new_tokens": 4, "seed": 3},
        {"prompt": "the film", "model": "GPT", "length_penalty": 2},
        "length_penalty is for beam search",
    ),
    "next_token": Example(
        {"text": "the film was", "model": "GPT", "top": 3, "targets": ["good"]},
        {"text": "the film was", "model": "MODEL"},
        "the next token needs a language model with its output layer",
    ),
    "score": Example(
        {"source": ["the film was good", "a day"], "model": "GPT"},
        {"source": ["a day"], "model": "CLASSIFIER"},
        "pseudo-log-likelihood needs",
    ),
    "benchmark": Example(
        {"task": "lambada", "data": "PASSAGES", "model": "GPT"},
        {"task": "lambada", "data": "PASSAGES", "model": "MODEL"},
        "a benchmark needs a model that predicts the next token",
    ),
    "cost": Example({"model": "gpt3", "tokens": "300B"}, {"model": "gpt9", "tokens": "1B"}, "did you mean 'gpt3'"),
    "cost_embed": Example(
        {"texts": "10B", "length": 22.0}, {"model": "bret-base-uncased", "texts": "1B"}, "did you mean"
    ),
    "translate": Example(
        {"model": "TRANSLATOR", "source": "the dog sees a cat", "num_beams": 2, "num_return_sequences": 2},
        {"model": "TRANSLATOR", "source": "the dog sees", "num_beams": 2, "num_return_sequences": 3},
        "num_return_sequences is 3",
    ),
    "evaluate": Example(
        {
            "model": "CLASSIFIER",
            "data": ["it is a good day\tpositive", "a bad film\tnegative", "good\tnegative"],
            "top": 2,
        },
        {"model": "CLASSIFIER", "data": ["it is a good day\tpositive"], "threshold": 0.5},
        "a threshold for no answer",
    ),
    "doctor": Example(
        {"model": "MODEL", "data": "LABELED"},
        {"model": "CLASSIFIER", "data": "LABELED", "task": "tag"},
        "leave --task out",
    ),
    "attribute": Example(
        {"text": "the _ was good", "model": "MODEL", "method": "occlusion", "label": "film"},
        {"text": "the _ was good", "model": "MODEL", "target": 1},
        "target is 1; expected 0 to 0",
    ),
    "faithfulness": Example(
        {"model": "CLASSIFIER", "text": "it is a good day for them", "seed": 2},
        {"model": "CLASSIFIER", "text": "good"},
        "the tests need 5 or more",
    ),
    "features": Example(
        {"data": [("the good film", "1"), ("the bad film", "0")] * 6, "model": "MODEL", "limit": 12},
        {"data": [("the good film", "1")] * 9, "model": "MODEL"},
        "the same label",
    ),
    "layers": Example(
        {"train": [("the good film", "1"), ("the bad film", "0")] * 6, "model": "MODEL", "task": "classify"},
        {"train": [("the good film", "1")] * 9, "model": "MODEL", "task": "classify"},
        "has the label '1'",
    ),
    "look": Example(
        {"text": "the film", "text_b": "was good", "model": "MODEL", "layer": 1, "head": 2},
        {"text": "a", "model": "MODEL", "layer": 7},
        "no layer 7",
    ),
    "long_attention": Example(
        {"text": "the film was good", "model": "GPT", "layer": 1, "head": 1},
        {"text": "the film was good", "model": "GPT", "layer": 1, "head": 9},
        "no head 9",
    ),
    "lens": Example(
        {"text": "the film was", "model": "GPT", "top": 2, "position": 1},
        {"text": "the film", "model": "GPT", "position": 9},
        "no position 9",
    ),
    "logit_attribution": Example(
        {"text": "the film was", "model": "GPT", "answer": "film", "wrong": "good"},
        {"text": "the film was", "model": "GPT", "answer": "film", "wrong": "film"},
        "are both",
    ),
    "patch": Example(
        {"clean": "the film was", "corrupted": "the film saw", "model": "GPT", "answer": "film", "wrong": "good"},
        {"clean": "the film was", "corrupted": "the film", "model": "GPT"},
        "expected the same number",
    ),
    "decode": Example(
        {"text": "the film", "model": "GPT", "num_beams": 2, "max_new_tokens": 3},
        {"text": " ", "model": "GPT"},
        "the text is empty",
    ),
    "figure": Example(
        {"text": "the film was _", "model": "MODEL", "without": ["positions", "scaling"], "layer": 1},
        {"text": "the film", "model": "MODEL", "without": ["masks"]},
        "did you mean 'mask'",
    ),
    "lesson": Example(
        {"chapter": "attention", "outline": True},
        {"chapter": "attention", "part": "no-such-part"},
        "attention has no part 'no-such-part'",
    ),
    "senses": Example(
        {"word": "film", "texts": ["the film was good", "they film the water"], "model": ["MODEL"]},
        {"word": "film", "texts": ["the film", "no such word"], "model": ["MODEL"]},
        "does not have the word",
    ),
    "heads": Example(
        {"text": ["the film was good", "the film was bad", "we love the water"], "model": "MODEL", "limit": 2},
        {"text": ["the film"], "model": "MODEL", "limit": 0},
        "limit",
    ),
    "activations": Example(
        {"source": ["the film was good", "a bad day"], "model": "MODEL", "layer": 1, "head": 1, "top": 1},
        {"source": ["the film was good"], "model": "MODEL", "layer": 1, "head": 9},
        "no head 9",
    ),
    "ablate": Example(
        {"text": "the _ was good", "model": "MODEL", "heads": "1.1", "top": 3},
        {"text": "the _ was good", "model": "MODEL", "heads": "all"},
        "expected LAYER.HEAD",
    ),
    "map": Example(
        {"texts": ["the film was good", "a bad day", "the water"], "model": "MODEL", "neighbors": 2},
        {"texts": ["only one"], "model": "MODEL"},
        "two sentences or more",
    ),
    "models": Example({}, None, ""),
    "download": Example({"name": "user/tiny"}, {"name": "a/b/c"}, "is not the name of a model on the hub"),
    "cache": Example({}, {"clear": "user/none"}, "not in the cache of the hub"),
    "pretrain": Example(
        {
            "family": "bert",
            "corpus": ["PASSAGES"],
            "heldout": ["PASSAGES"],
            "output": "PRETRAINED",
            "settings": [
                "schedule.max_steps=1",
                "model.hidden_size=12",
                "vocabulary.vocab_size=33",
                "objective.sentence_pairs=none",
                "data.max_length=16",
                "data.tokens_per_batch=64",
            ],
            "resume": True,
            "device": "cpu",
        },
        {"family": "bert", "corpus": ["PASSAGES"], "output": "PRETRAINED", "settings": ["schedule.warmup=1"]},
        "schedule",
    ),
    "train": Example(
        {"task": "classify", "train": "LABELED", "output": "TRAINED", **TRAINING, "model": "MODEL"},
        {"task": "classify", "train": "LABELED", "output": "TRAINED", "frozen": True, "both": True},
        "--both includes --frozen",
    ),
    "distill": Example(
        {"teacher": "TEACHER", "layers": 1, "train": "LABELED", "output": "DISTILLED", **TRAINING},
        {"teacher": "TEACHER", "layers": 2, "train": "LABELED", "output": "DISTILLED"},
        "expected fewer layers than the teacher has",
    ),
    "train_translator": Example(
        {"train": ["PAIRS"], "dev": ["PAIRS"], "output": "TRANSLATED", **TRANSLATION},
        {"train": ["PAIRS"], "output": "TRANSLATED", "score": "dot"},
        "add --model lstm",
    ),
    "train_embedder": Example(
        {"train": "PAIRS", "dev": "PAIRS", "model": "MODEL", "output": "EMBEDDER", **TRAINING},
        {"train": "PASSAGES", "model": "MODEL", "output": "EMBEDDER"},
        "cannot tell which columns to use",
    ),
    "corpus_build": Example(
        {"source": ["PASSAGES"], "output": "CORPUS", "tokenizer": "MODEL"},
        {"source": ["PASSAGES"], "output": "CORPUS", "tokenizer": "MODEL", "shard_size": "1 apple"},
        "is not a size",
    ),
    "predict": Example(
        {"model": "CLASSIFIER", "source": ["the film was good", "a day"]},
        {"model": "CLASSIFIER", "source": ["the film"], "threshold": 0.5},
        "a threshold for no answer",
    ),
    "export": Example(
        {"model": "MODEL", "output": "EXPORTED", "format": "sentence-transformers", "normalize": True},
        {"model": "GPT", "output": "EXPORTED", "format": "sentence-transformers"},
        "expected a BERT, a DistilBERT, a RoBERTa",
    ),
}
