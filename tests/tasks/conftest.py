"""Tokenizers and tiny encoders with random weights, of each family that can be fine-tuned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from regard.models import Bert, Elmo, ElmoConfig, Gpt, GptConfig, Llama
from regard.models.family import build, get_family
from regard.models.mistral import MistralConfig
from regard.tasks.inputs import InputBuilder
from regard.text import Tokenizer
from tests.conftest import WORDS
from tests.inference.folders import byte_level, randomized
from tests.text.families import FAMILIES, family_tokenizer

Encoders: TypeAlias = Callable[[str], Bert | Gpt | Elmo]
Makers: TypeAlias = Callable[..., InputBuilder]

POSITIONS = 64


@pytest.fixture(scope="session")
def tokenizers(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("vocabularies")
    bert = Tokenizer.open(tiny_bert_folder)
    return {
        "bert": bert,
        "distilbert": bert,
        "elmo": bert,
        "roberta": byte_level(folder / "roberta", specials=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], kind="roberta"),
        "gpt2": byte_level(folder / "gpt2", specials=["<|endoftext|>"], kind="gpt2"),
        "mistral": byte_level(folder / "mistral", specials=["<|endoftext|>"], kind="gpt2"),
        "gemma2": byte_level(folder / "gemma2", specials=["<|endoftext|>"], kind="gpt2"),
        "gemma3-text": byte_level(folder / "gemma3-text", specials=["<|endoftext|>"], kind="gpt2"),
        **{name: family_folder(name, folder) for name in FAMILIES},
    }


def family_folder(name: str, folder: Path) -> Tokenizer:
    (folder / name).mkdir()
    return Tokenizer.open(family_tokenizer(name, folder / name, [WORDS, "the film is good.", "a bad day, or was it?"]))


@pytest.fixture(scope="session")
def rows_of(tokenizers: dict[str, Tokenizer]) -> Makers:
    def make(family: str, limit: int = POSITIONS) -> InputBuilder:
        return InputBuilder(tokenizers[family], family=family, max_length=limit)

    return make


@pytest.fixture(scope="session")
def encoder_of(tokenizers: dict[str, Tokenizer]) -> Encoders:
    """Builds a new encoder at each call, always with the same weights."""

    def make(family: str) -> Bert | Gpt | Llama | Elmo:
        if family == "elmo":
            shape = ElmoConfig(
                vocab_size=tokenizers[family].size, num_characters=0, hidden_size=12, cell_size=12, num_hidden_layers=2
            )
            elmo = Elmo(shape)
            randomized(elmo)
            return elmo.eval()
        sizes: dict[str, Any] = {
            "vocab_size": tokenizers[family].size,
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 40,
        }
        if family == "gpt2":
            model: Any = Gpt(GptConfig(**sizes, max_position_embeddings=POSITIONS, bos_token_id=0, eos_token_id=0))
        elif family == "mistral":
            more = {"max_position_embeddings": POSITIONS, "num_key_value_heads": 2, "sliding_window": 9}
            model = Llama(MistralConfig(**sizes, **more, bos_token_id=0, eos_token_id=0))
        elif family.startswith("gemma"):
            more = {"max_position_embeddings": POSITIONS, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 9}
            model = build(get_family(family).config_class(**sizes, **more, bos_token_id=0, eos_token_id=0))
        else:
            sizes |= {"family": family, "max_position_embeddings": POSITIONS}
            if get_family(family).num_separators == 2:
                sizes |= {"position_offset": 2, "pad_token_id": 1, "type_vocab_size": int(family != "mpnet")}
            elif family == "distilbert":
                sizes["type_vocab_size"] = 0
            elif family in ("electra", "albert"):
                sizes["embedding_size"] = 10
            elif family == "deberta-v2":
                sizes |= {"position_buckets": 4, "max_relative_positions": 9}
            elif family == "modernbert":
                sizes |= {"local_attention": 4, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
            model = build(get_family(family).config_class(**sizes))
        randomized(model)
        return model.eval()

    return make
