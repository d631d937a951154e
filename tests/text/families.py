"""Tokenizers of encoder families with small vocabularies, in the files that transformers writes for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

__all__ = ["FAMILIES", "family_tokenizer"]

FAMILIES = ("xlm-roberta", "camembert", "mpnet", "electra", "albert", "modernbert", "deberta-v2")
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZE = 600  # entries, special tokens aside


def family_tokenizer(family: str, folder: Path, texts: Sequence[str]) -> Path:
    """Train a tokenizer of the family's kind on the texts and write its files."""
    import transformers

    made: Any
    if family == "xlm-roberta":
        vocabulary = [*((token, 0.0) for token in ROBERTA), *_unigram(texts), ("<mask>", 0.0)]
        made = transformers.XLMRobertaTokenizer(vocab=vocabulary, mask_token=_mask("<mask>"))
    elif family == "camembert":
        unused = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
        made = transformers.CamembertTokenizer(vocab=[*unused, *_unigram(texts), ("<s>", 0.0), ("</s>", 0.0)])
    elif family == "albert":
        specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
        vocabulary = [*((token, 0.0) for token in specials), *_unigram([text.lower() for text in texts])]
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        made = transformers.AlbertTokenizer(vocab=vocabulary, mask_token=_mask("[MASK]"), model_input_names=inputs)
    elif family == "deberta-v2":
        specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
        vocabulary = [*((token, 0.0) for token in specials), *_unigram(texts)]
        made = transformers.DebertaV2Tokenizer(vocab=vocabulary)
    elif family == "mpnet":  # published folders also have vocab.txt, which is read if tokenizer.json is missing
        tokens = [*ROBERTA, "[UNK]", *_wordpiece(texts), "<mask>"]
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        (folder / "config.json").write_text(json.dumps({"model_type": "mpnet"}))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MPNetTokenizer"}))
        return folder
    elif family == "electra":
        tokens = [*BERT, *_wordpiece(texts)]
        made = transformers.ElectraTokenizer(vocab={token: number for number, token in enumerate(tokens)})
    else:
        made = transformers.PreTrainedTokenizerFast(
            tokenizer_object=_bytelevel(texts),
            **dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), BERT[:4], strict=True)),
            mask_token=_mask("[MASK]"),
            model_input_names=["input_ids", "attention_mask"],
        )
    made.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return folder


def _mask(token: str) -> AddedToken:
    """As in the published files: the mask replaces a word together with the space before it."""
    return AddedToken(token, lstrip=True, special=True, normalized=False)


def _unigram(texts: Sequence[str]) -> list[tuple[str, float]]:
    pipeline = tokenizers.Tokenizer(models.Unigram())
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
    pipeline.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=SIZE, show_progress=False))
    return [(piece, score) for piece, score in json.loads(pipeline.to_str())["model"]["vocab"]]


def _wordpiece(texts: Sequence[str]) -> list[str]:
    pipeline = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=SIZE, show_progress=False, continuing_subword_prefix="##")
    pipeline.train_from_iterator((text.lower() for text in texts), trainer)
    return sorted(pipeline.get_vocab())


def _bytelevel(texts: Sequence[str]) -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, show_progress=False, initial_alphabet=alphabet, special_tokens=BERT)
    pipeline.train_from_iterator(texts, trainer)
    marks = [(token, pipeline.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    pipeline.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=marks
    )
    return pipeline
