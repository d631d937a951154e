"""Reads the vocabulary files of a folder into a pipeline of the `tokenizers` library.

No code of the folder is run and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import InputError
from regard.text import guard
from regard.text.tokenizer_config import BERT, ROLES, TokenizerConfig, read_object, read_text

EXPECTED = "tokenizer.json, vocab.txt, or vocab.json and merges.txt"
SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
LIKE_ROBERTA = {"roberta", "bart", "longformer"}
WITHOUT_SEGMENTS = LIKE_ROBERTA | {"distilbert", "gpt2", "t5"}


@dataclass(frozen=True)
class TokenizerParts:
    """A folder's tokenizer: the pipeline, role -> special token, maximum length, and `model_input_names`.

    `largest` is the largest id of the vocabulary.
    """

    pipeline: Tokenizer
    names: Mapping[str, str]
    max_length: int | None
    inputs: tuple[str, ...]
    largest: int


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Convert exceptions and panics of the Rust library to an InputError that begins with `what`."""
    try:
        yield
    except MemoryError:
        raise
    except BaseException as error:
        # A panic derives directly from BaseException, and its class cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise InputError(f"{what}: {error}") from error
        raise


def exists(folder: Path) -> bool:
    """Whether the folder has tokenizer files, which may still be invalid."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json", *SENTENCEPIECE))


def read(folder: Path) -> TokenizerParts:
    """Read the folder's tokenizer: tokenizer.json if it exists, else vocab.txt, else vocab.json + merges.txt."""
    settings = TokenizerConfig.open(folder)
    if (path := folder / "tokenizer.json").is_file():
        text = read_text(path)
        guard.check_tokenizer_file(text, path)
        with refusing(f"{path} cannot be used; fetch or save it again, or remove it if the folder also has vocab.txt"):
            pipeline = Tokenizer.from_str(text)
        # The caller of `encode` sets the maximum length; a file could request padding to any length.
        pipeline.no_truncation()
        pipeline.no_padding()
        tokens = settings.tokens(pipeline.get_vocab(with_added_tokens=True))
    elif (path := folder / "vocab.txt").is_file():
        pipeline, tokens = _wordpiece(path, settings)
    elif (path := folder / "vocab.json").is_file():
        pipeline, tokens = _bytelevel(path, settings)
    else:
        raise InputError(_missing_message(folder))
    # As in transformers: special tokens are recognized in texts even if tokenizer.json does not list them.
    known = {token.content for token in pipeline.get_added_tokens_decoder().values()}
    pipeline.add_special_tokens([token for token in tokens.values() if token.content not in known])
    with refusing(f"{path} cannot be used; its vocabulary lacks the special tokens that it adds to a text"):
        segments = 1 in pipeline.encode("", "").type_ids and settings.kind not in WITHOUT_SEGMENTS
    inputs = ("input_ids", "token_type_ids", "attention_mask") if segments else ("input_ids", "attention_mask")
    names = {role: token.content for role, token in tokens.items()}
    largest = max(pipeline.get_vocab(with_added_tokens=True).values(), default=-1)
    return TokenizerParts(pipeline, names, settings.max_length, settings.inputs or inputs, largest)


def _wordpiece(path: Path, settings: TokenizerConfig) -> tuple[Tokenizer, dict[str, AddedToken]]:
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(_lines(path)):
        if token in vocabulary:
            raise InputError(
                f"{path}, line {number + 1}: {token!r} is already on line {vocabulary[token] + 1}; "
                "a token's line is its id, so rename one of them"
            )
        vocabulary[token] = number
    if vocabulary.keys() <= {""}:
        raise InputError(f"{path} is empty; expected one token per line, as in a published BERT folder")
    added = settings.added
    tokens = settings.tokens(vocabulary.keys() | added.keys())
    for role in ("unknown", "cls", "sep"):
        if role not in tokens:
            name = settings.names.get(ROLES[role], BERT[role])
            raise InputError(f"{path} has no line for the {ROLES[role]} {name!r}; a BERT tokenizer needs it")
    pipeline = Tokenizer(models.WordPiece(vocabulary, unk_token=tokens["unknown"].content))
    pipeline.normalizer = normalizers.BertNormalizer(
        lowercase=settings.flag("do_lower_case") is not False,
        strip_accents=settings.flag("strip_accents"),
        handle_chinese_chars=settings.flag("tokenize_chinese_chars") is not False,
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    _extend(pipeline, added, path)
    pipeline.post_processor = processors.BertProcessing(
        _numbered(pipeline, tokens["sep"]), _numbered(pipeline, tokens["cls"])
    )
    return pipeline, tokens


def _bytelevel(path: Path, settings: TokenizerConfig) -> tuple[Tokenizer, dict[str, AddedToken]]:
    vocabulary = read_object(path)
    for token, number in vocabulary.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**32:
            raise InputError(f"{path}: the id of {token!r} should be a whole number from 0, not {number!r}")
    if not vocabulary or len(set(vocabulary.values())) < len(vocabulary):
        raise InputError(f"{path} should give every token a unique id, but it is empty or repeats an id")
    merges = _merges(path.with_name("merges.txt"))
    added = settings.added
    tokens = settings.tokens(vocabulary.keys() | added.keys())
    with refusing(f"{path} and its merges.txt do not belong together"):
        pipeline = Tokenizer(models.BPE(vocabulary, merges))
    space = settings.flag("add_prefix_space") is True
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    pipeline.decoder = decoders.ByteLevel()
    _extend(pipeline, added, path)
    if settings.kind in LIKE_ROBERTA:
        if not {"cls", "sep"} <= tokens.keys():
            raise InputError(f"{path} lacks '<s>' or '</s>', which a {settings.kind} tokenizer adds to a text")
        if isinstance(settings.names.get("mask_token", ""), str) and "mask" in tokens:
            # In RoBERTa's training, the mask replaced a word together with the space before it.
            tokens["mask"] = AddedToken(tokens["mask"].content, lstrip=True, normalized=False, special=True)
        pipeline.post_processor = processors.RobertaProcessing(
            _numbered(pipeline, tokens["sep"]), _numbered(pipeline, tokens["cls"]), add_prefix_space=space
        )
        return pipeline, tokens
    pipeline.post_processor = offsets = processors.ByteLevel(trim_offsets=False)
    if settings.flag("add_bos_token") and "bos" in tokens:
        bos = tokens["bos"].content
        template = processors.TemplateProcessing(
            single=[bos, "$A"],
            pair=[bos, "$A", f"{bos}:1", "$B:1"],
            special_tokens=[_numbered(pipeline, tokens["bos"])],
        )
        pipeline.post_processor = processors.Sequence([offsets, template])
    return pipeline, tokens


def _merges(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        raise InputError(
            f"{path} is missing; vocab.json needs it in the same folder, or use tokenizer.json instead of both"
        )
    merges = []
    for number, line in enumerate(_lines(path), 1):
        pieces = line.split(" ")
        if line.startswith("#version") and number == 1:
            continue
        if len(pieces) != 2 or not all(pieces):
            raise InputError(f"{path}, line {number}: expected two pieces with a space between them, got {line!r}")
        merges.append((pieces[0], pieces[1]))
    return merges


def _lines(path: Path) -> list[str]:
    # splitlines() would also split at separators that are tokens in multilingual vocabularies.
    return read_text(path).removesuffix("\n").split("\n")


def _extend(pipeline: Tokenizer, added: Mapping[str, tuple[int, AddedToken]], path: Path) -> None:
    for content, (number, token) in added.items():
        pipeline.add_tokens([token])
        if (got := pipeline.token_to_id(content)) != number:
            raise InputError(
                f"{path}: the added token {content!r} should have the id {number}, but the next free id is {got}"
            )


def _numbered(pipeline: Tokenizer, token: AddedToken) -> tuple[str, int]:
    number = pipeline.token_to_id(token.content)
    if number is None:
        raise InputError(f"the special token {token.content!r} is not in the vocabulary")
    return token.content, number


def _missing_message(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is not a folder; expected one with {EXPECTED}"
    for name in SENTENCEPIECE:
        if (folder / name).is_file():
            return (
                f"{folder} has only {name}, which Regard does not read; convert it to tokenizer.json once, with "
                'transformers and sentencepiece installed: python -c "from transformers import AutoTokenizer; '
                f'AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"'
            )
    return f"{folder} has no tokenizer; expected {EXPECTED} in it"
