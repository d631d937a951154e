"""Tokenizer folders with published vocabularies, and the transformers tokenizers of the same files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from regard.text import Encoding, Tokenizer
from tests.text.families import FAMILIES, family_tokenizer

EDGE_CASE_TEXTS = [
    "",
    " \t\n",
    "A Visually stunning rumination on love, don't you think?",
    "Héllo WÖRLD naïve e\u0301\u0301 \uff21\uff22 İstanbul ﬁ ß ΑΣ",
    "[CLS] x [SEP][MASK] [PAD][UNK] a <mask> b<mask>  c </s><s><|endoftext|>hi",
    "日本語テキスト 漢字 한국어 தமிழ் ไทย",
    "joiners \u200d \u200c👩‍👩‍👧‍👦 🏳️‍🌈",
    "\u202e\u05e9\u05dc\u05d5\u05dd\u200f مرحبا \u2066abc\u2069",
    "nul\0in\0side \x85 \u2028 \u3000 \xa0 \ufeff \ufffd \ue000",
    "x" * 100 + " " + "y" * 101 + " " + "unbelievable" * 20,
    "1,000.50$ #$% ```code``` <b>html</b> a_b-c",
]


@dataclass(frozen=True)
class Both:
    """The same folder loaded by Regard and, independently, by transformers."""

    folder: Path
    ours: Tokenizer
    theirs: Any

    def agree(self, encoding: Encoding, *texts: str, **options: Any) -> bool:
        """Whether the encoding of a text or a pair equals that of transformers."""
        wanted = ("offsets_mapping", "token_type_ids", "special_tokens_mask")
        reference = self.theirs(*texts, **options, **{f"return_{name}": True for name in wanted})
        return (
            encoding.ids == reference["input_ids"]
            and encoding.tokens == reference.tokens()
            and encoding.offsets == reference["offset_mapping"]
            and encoding.words == reference.word_ids()
            and encoding.segments == reference["token_type_ids"]
            and encoding.special_tokens_mask == [bool(mark) for mark in reference["special_tokens_mask"]]
        )


@pytest.fixture(scope="session")
def bert(shared_data: Callable[[str], Path]) -> Both:
    from transformers import BertTokenizerFast

    folder = shared_data("vocab-bert-base-uncased")
    return Both(folder, Tokenizer.open(folder), BertTokenizerFast.from_pretrained(str(folder)))


@pytest.fixture(scope="session")
def gpt2(shared_data: Callable[[str], Path]) -> Both:
    from transformers import GPT2TokenizerFast

    folder = shared_data("vocab-gpt2")
    return Both(folder, Tokenizer.open(folder), GPT2TokenizerFast.from_pretrained(str(folder)))


@pytest.fixture(scope="session")
def roberta(shared_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Both:
    """GPT-2's tokens with RoBERTa's special tokens and numbering."""
    from transformers import AddedToken, RobertaTokenizerFast

    source, folder = shared_data("vocab-gpt2"), tmp_path_factory.mktemp("roberta")
    pieces = json.loads((source / "vocab.json").read_text(encoding="utf-8"))
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pieces, key=lambda piece: pieces[piece])[:-1], "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    shutil.copyfile(source / "merges.txt", folder / "merges.txt")
    # The published tokenizer.json strips the space before <mask>; transformers 5 does not do so for bare vocabularies.
    mask = AddedToken("<mask>", lstrip=True, special=True, normalized=False)
    return Both(folder, Tokenizer.open(folder), RobertaTokenizerFast.from_pretrained(str(folder), mask_token=mask))


@pytest.fixture(scope="session")
def clip(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A vocabulary like CLIP's, whose tokens end words with </w>, trained on the sentences."""
    from transformers import CLIPTokenizerFast

    folder = tmp_path_factory.mktemp("clip")
    pipeline = tokenizers.Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1200, end_of_word_suffix="</w>", initial_alphabet=alphabet, show_progress=False
    )
    pipeline.train_from_iterator([word for one in sentences for word in one.split()], trainer)
    pieces = pipeline.get_vocab()
    tokens = sorted(
        {*pieces, *(f"{character}</w>" for character in alphabet)}, key=lambda one: (pieces.get(one, 0), one)
    )
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    merges = json.loads(pipeline.to_str())["model"]["merges"]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "clip"}))
    return Both(folder, Tokenizer.open(folder), CLIPTokenizerFast.from_pretrained(str(folder)))


@pytest.fixture(scope="session")
def other(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    """The tokenizer of a family with a small vocabulary of its kind, as transformers saves it; made once."""
    from transformers import AutoTokenizer

    made: dict[str, Both] = {}

    def make(family: str) -> Both:
        if family not in made:
            folder = family_tokenizer(family, tmp_path_factory.mktemp(family), sentences)
            made[family] = Both(folder, Tokenizer.open(folder), AutoTokenizer.from_pretrained(str(folder)))
        return made[family]

    return make


@pytest.fixture(params=["bert", "gpt2", "roberta", "clip", *FAMILIES])
def both(request: pytest.FixtureRequest) -> Both:
    name = request.param
    found = request.getfixturevalue("other")(name) if name in FAMILIES else request.getfixturevalue(name)
    assert isinstance(found, Both)
    return found


@pytest.fixture
def edge_case_texts() -> list[str]:
    return list(EDGE_CASE_TEXTS)


@pytest.fixture(scope="session")
def sentences(shared_data: Callable[[str], Path]) -> list[str]:
    lines = shared_data("sst2/train.tsv").read_text(encoding="utf-8").split("\n")
    return [line.split("\t")[0] for line in lines[:500]]


@pytest.fixture
def small(tmp_path: Path) -> Tokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", "caf", "##e"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return Tokenizer.open(tmp_path)


@pytest.fixture
def unigram() -> tokenizers.Tokenizer:
    """A pipeline like T5's, with seven tokens."""
    scores = {"<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0, "▁": -2.0, "▁hello": -1.0, "▁wor": -3.0, "ld": -3.0}
    pipeline = tokenizers.Tokenizer(models.Unigram(list(scores.items()), unk_id=2))
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
    pipeline.decoder = decoders.Metaspace()
    pipeline.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_0>"])
    pipeline.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return pipeline
