"""Tiny published models with task heads, as transformers writes them, with a tokenizer of the family's kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors

from tests.conftest import WORDS
from tests.parity.references import REFERENCES, randomized
from tests.text.families import FAMILIES, family_tokenizer

__all__ = ["HEADS", "LONG", "SENTENCES", "publish"]

SENTENCES = ["The film is good.", "a bad day, or was it?", "é ü 日本", "x"]
LONG = "a long text of many words " * 30
ENCODERS = ("bert", "distilbert", "roberta", *FAMILIES)
EMBEDDERS = ("nomic-bert", "gte", "eurobert")  # for which transformers has fewer heads
DECODERS = (
    "gpt2",
    "openai-gpt",
    "gpt-neo",
    "gptj",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "phi3",
    "gemma",
    "gemma2",
    "gemma3-text",
)
DECODERS += ("gpt-neox", "olmo2", "smollm3", "mixtral", "qwen2-moe", "qwen3-moe")
# The families of each head whose scores the tests compare with those of transformers.
HEADS = {
    "SequenceClassification": (*ENCODERS, *EMBEDDERS, *DECODERS, "bart"),
    "TokenClassification": (
        *(*ENCODERS, *EMBEDDERS),
        *("gpt2", "gpt-neo", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2"),
    ),
    "QuestionAnswering": (*ENCODERS, "gpt2", "gpt-neo", "gptj", "llama", "mistral", "qwen2", "qwen3"),
    "MultipleChoice": ENCODERS,
    "ImageClassification": ("vit", "deit"),
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _wordpieces() -> list[str]:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS), *".,?"]
    return [*tokens, *(word for word in WORDS.split()[:60] if word not in tokens)]


def _bytes(specials: Sequence[str]) -> dict[str, int]:
    tokens = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    return {token: number for number, token in enumerate(tokens)}


def _decoder_tokenizer(*, begin: bool) -> Any:
    pipeline = tokenizers.Tokenizer(models.BPE(_bytes(["<pad>", "<s>", "</s>"]), []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.normalizer = normalizers.NFC()
    if begin:
        pipeline.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=pipeline,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )


def tokenizer_of(family: str, folder: Path) -> Any:
    """The tokenizer of transformers for a family."""
    if family in DECODERS:
        return _decoder_tokenizer(begin=family != "gpt2")
    if family in ("bert", "distilbert", *EMBEDDERS):
        vocabulary = {token: number for number, token in enumerate(_wordpieces())}
        kind = transformers.DistilBertTokenizer if family == "distilbert" else transformers.BertTokenizer
        return kind(vocab=vocabulary)
    if family in ("roberta", "bart"):
        vocabulary = _bytes(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        kind = transformers.RobertaTokenizer if family == "roberta" else transformers.BartTokenizer
        return kind(vocab=vocabulary, merges=[])
    made = folder / "tokenizer"
    made.mkdir()
    family_tokenizer(family, made, [WORDS, *SENTENCES, "the film is good.", "a bad day, or was it?"])
    return transformers.AutoTokenizer.from_pretrained(made)


def publish(family: str, head: str, folder: Path, *, labels: Sequence[str] | int = 3, **options: Any) -> Any:
    """Write a model of the class AutoModelFor`head`, and return transformers' model; it is in evaluation mode.

    `options` are attributes of its config.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(family, folder)
    config = REFERENCES[family]().config
    config.vocab_size = len(tokenizer)
    for role in ("pad", "bos", "eos"):
        number = getattr(tokenizer, f"{role}_token_id")
        if number is not None:
            setattr(config, f"{role}_token_id", number)
    if isinstance(labels, int):
        config.num_labels = labels
    else:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
    for name, value in options.items():
        setattr(config, name, value)
    model = randomized(getattr(transformers, f"AutoModelFor{head}").from_config(config))
    model.save_pretrained(folder)
    positions = config.max_position_embeddings - (2 if "position_offset" in _offset(family) else 0)
    tokenizer.model_max_length = positions
    tokenizer.save_pretrained(folder)
    return model


def _offset(family: str) -> str:
    return "position_offset" if family in ("roberta", "xlm-roberta", "camembert", "mpnet") else ""
