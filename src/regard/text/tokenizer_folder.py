"""Reads the tokenizer files of a folder into a pipeline of the `tokenizers` library.

Every value is validated before it is used, no code of the folder is run and nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import InputError
from regard.files.file_input import read_file
from regard.files.json_files import read_json
from regard.text import guard
from regard.text.chat_template import MAX_TEMPLATE

LIMIT = 256 << 20  # bytes of a vocabulary or tokenizer.json; the largest published ones have about 40 MB
# Roles of special tokens, as in Hugging Face's files.
SPECIAL_TOKENS = ("pad_token", "mask_token", "cls_token", "sep_token", "unk_token", "bos_token", "eos_token")
# Published folders often rely on the defaults of the tokenizer's class, which are these.
BERT = {
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
}
DEBERTA = BERT | {"bos_token": "[CLS]", "eos_token": "[SEP]"}
GPT2 = {"unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
CLIP = GPT2 | {"bos_token": "<|startoftext|>", "pad_token": "<|endoftext|>"}
T5 = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
ROBERTA = T5 | {"mask_token": "<mask>", "cls_token": "<s>", "sep_token": "</s>", "bos_token": "<s>"}
MPNET = ROBERTA | {"unk_token": "[UNK]"}
LLAMA = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
# Tokenizer classes of transformers, and families that have one if none is stated, that build their normalizer from
# tokenizer_config.json even beside a tokenizer.json.
BERT_CLASSES = ("bert", "distilbert", "electra", "mpnet", "mobilebert", "squeezebert", "layoutlm", "funnel")
BERT_FAMILIES = ("bert", "distilbert", "electra", "mpnet", "nomic_bert")
BY_KIND = {"mpnet": MPNET, "deberta-v2": DEBERTA, "debertav2": DEBERTA}
# Of other families, the first of these tokens that is in the vocabulary determines the tokens.
FAMILIES = {
    "[CLS]": BERT,
    "<mask>": ROBERTA,
    "<|startoftext|>": CLIP,
    "<|endoftext|>": GPT2,
    "<pad>": T5,
    "</s>": LLAMA,
}


@dataclass(frozen=True)
class TokenizerConfig:
    """The contents of a folder's JSON files; `kind` is the model family in lower case, or empty. `is_bert` says that
    transformers builds the normalizer from tokenizer_config.json, whatever tokenizer.json says."""

    folder: Path
    values: Mapping[str, Any]
    names: Mapping[str, Any]
    kind: str
    is_bert: bool = False

    @classmethod
    def open(cls, folder: Path) -> TokenizerConfig:
        """Read the folder's JSON files. Each may be missing; an invalid one is an error."""
        values = read_object(folder / "tokenizer_config.json")
        # As in transformers, special_tokens_map.json overrides the configuration unless that lists the added tokens.
        names = dict(values)
        if "added_tokens_decoder" not in values:
            names |= read_object(folder / "special_tokens_map.json")
            if "extra_special_tokens" in values or "additional_special_tokens" in values:
                names["additional_special_tokens"] = values.get("additional_special_tokens")
        config = read_object(folder / "config.json")
        family, stated = config.get("model_type"), values.get("tokenizer_class") or config.get("tokenizer_class")
        is_bert = _class_kind(stated) in BERT_CLASSES if stated else family in BERT_FAMILIES
        # transformers takes no class but the general one for ModernBERT, whatever is stated.
        is_bert = is_bert and family != "modernbert"
        return cls(folder, values, names, _class_kind(family or values.get("tokenizer_class") or ""), is_bert)

    def flag(self, key: str) -> bool | None:
        """A Boolean option of tokenizer_config.json, or None if it is missing."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise InputError(f"{self._file}: {key} should be true or false, not {value!r}")
        return value

    @property
    def max_length(self) -> int | None:
        """model_max_length, or None for the huge number that published folders use for "no limit"."""
        value = self.values.get("model_max_length")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{self._file}: model_max_length should be a number, not {value!r}")
        return int(value) if 1 <= value < 1e9 else None

    @property
    def truncation_side(self) -> Literal["left", "right"]:
        """Where texts that are too long lose tokens."""
        value = self.values.get("truncation_side") or "right"
        if value not in ("left", "right"):
            raise InputError(f"{self._file}: truncation_side should be left or right, not {value!r}")
        return "left" if value == "left" else "right"

    @property
    def inputs(self) -> tuple[str, ...]:
        """model_input_names, the inputs that transformers passes to the model; empty if missing."""
        value = self.values.get("model_input_names") or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise InputError(f"{self._file}: model_input_names should be a list of strings, not {value!r}")
        return tuple(value)

    @property
    def chat_template(self) -> str | None:
        """The Jinja template of chat messages: chat_template.jinja, or the default one in tokenizer_config.json."""
        path = self.folder / "chat_template.jinja"
        value: object = read_text(path) if path.is_file() else self.values.get("chat_template")
        if isinstance(value, list):
            named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
            if len(named) < len(value):
                raise InputError(f"{self._file}: every chat_template in a list needs its own 'name' and a 'template'")
            value = named.get("default")
        if value is not None and (not isinstance(value, str) or len(value) > MAX_TEMPLATE):
            raise InputError(f"{self._file}: chat_template should be a text of at most {MAX_TEMPLATE:,} characters")
        return value

    def tokens(self, vocabulary: Collection[str]) -> dict[str, AddedToken]:
        """The special tokens by role, if they are in the vocabulary; null in the files means none."""
        found = (family for mark, family in FAMILIES.items() if mark in vocabulary)
        defaults = BY_KIND.get(self.kind) or next(found, {})
        tokens = {role: self._token(self.names.get(role, defaults.get(role))) for role in SPECIAL_TOKENS}
        return {role: token for role, token in tokens.items() if token is not None and token.content in vocabulary}

    @property
    def added(self) -> dict[str, tuple[int, AddedToken]]:
        """Tokens added to the vocabulary after its training, with their ids, ordered by id."""
        entries: list[tuple[object, object]]
        if "added_tokens_decoder" in self.values:
            listed = self.values["added_tokens_decoder"] or {}
            entries = list(listed.items()) if isinstance(listed, dict) else [(None, listed)]
        else:
            old = read_object(self.folder / "added_tokens.json")
            roles = (self._token(self.names.get(role)) for role in SPECIAL_TOKENS)
            special = {token.content for token in (*roles, *self.extra) if token is not None}
            entries = [(number, {"content": token, "special": token in special}) for token, number in old.items()]
        result = {}
        for number, value in entries:
            if isinstance(value, dict):  # the defaults of an added token
                value = {"special": False, "normalized": not value.get("special"), **value}
            token = self._token(value)
            if token is None or not str(number).isdecimal() or len(str(number)) > 9:
                raise InputError(f"{self.folder}: expected an added token with its id, got {value!r} with {number!r}")
            result[token.content] = (int(str(number)), token)
        return dict(sorted(result.items(), key=lambda item: item[1][0]))

    @property
    def extra(self) -> list[AddedToken]:
        """Special tokens without a role, or with one that only their model has."""
        values: list[object] = [
            value
            for key, value in self.values.items()
            if key.endswith("_token") and key not in SPECIAL_TOKENS and isinstance(value, str)
        ]
        listed = self.names.get("extra_special_tokens") or self.names.get("additional_special_tokens") or []
        values += listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else [listed]
        return [token for token in map(self._token, values) if token is not None]

    @property
    def _file(self) -> Path:
        return self.folder / "tokenizer_config.json"

    def _token(self, value: object) -> AddedToken | None:
        if value is None:
            return None
        if isinstance(value, str):
            return AddedToken(value, normalized=False, special=True)
        if not isinstance(value, dict) or not isinstance(value.get("content"), str):
            raise InputError(f"{self.folder}: a token is a string or an object with 'content', not {value!r}")
        flags = {"normalized": False, "special": True}
        flags |= {key: value[key] for key in ("single_word", "lstrip", "rstrip", *flags) if key in value}
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise InputError(f"{self.folder}: the flags of {value['content']!r} should be true or false: {flags}")
        return AddedToken(value["content"], **flags)


def _class_kind(name: object) -> str:
    return str(name).removesuffix("Fast").removesuffix("Tokenizer").lower()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or an empty one if the file does not exist."""
    return read_json(path) if path.is_file() else {}


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with line breaks converted to "\\n"."""
    try:
        data = read_file(path, limit=LIMIT)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text ({error.reason}); save it as UTF-8") from error


EXPECTED = "tokenizer.json, vocab.txt, vocab.json and merges.txt, or a SentencePiece model"
SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")
MARIAN = ("source.spm", "target.spm", "target_vocab.json")  # beside vocab.json
FAIRSEQ = {"xlm-roberta", "xlmroberta", "camembert", "mbart", "mbart50"}  # their ids are shifted
WORD_END = "</w>"  # ends the last token of a word in the vocabularies of CLIP and the first GPT
# What CLIP's tokenizer takes for a word.
CLIP_WORD = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
LIKE_ROBERTA = {"roberta", "bart", "longformer"}
WITHOUT_SEGMENTS = LIKE_ROBERTA | FAIRSEQ | {"distilbert", "gpt2", "t5", "mpnet", "modernbert"}


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


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder has tokenizer files, which may still be invalid."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json", *SENTENCEPIECE))


def read_tokenizer(folder: Path, *, plain: bool = False) -> tuple[Tokenizer, dict[str, Any]]:
    """Read a folder's tokenizer.json if it exists, else vocab.txt, vocab.json + merges.txt or a SentencePiece model.

    Returns the pipeline and the keyword arguments for `regard.text.Tokenizer`. A `plain` one adds no special tokens,
    and cuts texts as tokenizer.json alone says.
    """
    settings, stated = TokenizerConfig.open(folder), None
    if (path := folder / "tokenizer.json").is_file():
        pipeline = load_document(read_text(path), path)
        stated = pipeline.truncation
        if settings.is_bert and not plain and isinstance(pipeline.normalizer, normalizers.BertNormalizer):
            pipeline.normalizer = _bert_normalizer(settings)
        # The caller of `encode` sets the maximum length; a file could request padding to any length.
        pipeline.no_truncation()
        pipeline.no_padding()
        tokens = settings.tokens(pipeline.get_vocab(with_added_tokens=True).keys() | settings.added.keys())
    elif (path := folder / "vocab.txt").is_file():
        pipeline, tokens = _wordpiece(path, settings)
    elif (path := folder / "vocab.json").is_file():
        pipeline, tokens = _bytelevel(path, settings)
    elif (found := next((folder / name for name in SENTENCEPIECE if (folder / name).is_file()), None)) is not None:
        pipeline, tokens = _sentencepiece(path := found, settings)
    else:
        raise InputError(_missing_message(folder))
    pipeline, arguments = _finish(path, pipeline, tokens, settings)
    if plain:
        pipeline.post_processor = None
        stated = stated or {"max_length": None, "direction": "right"}
        arguments |= {"max_length": stated["max_length"], "truncation_side": stated["direction"].lower()}
    return pipeline, arguments


def load_document(text: str, path: Path) -> Tokenizer:
    """The pipeline of a tokenizer.json, or of what a file was converted to; InputError if it cannot be used."""
    guard.check_tokenizer_file(text, path)
    with refusing(f"{path} cannot be used; fetch or save it again, or remove it if the folder also has vocab.txt"):
        return Tokenizer.from_str(text)


def read_vocabulary(path: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """Read a WordPiece vocabulary by itself, for the tokenizer of an uncased BERT; returns as `read_tokenizer`."""
    settings = TokenizerConfig(path.parent, {}, {}, "bert")
    return _finish(path, *_wordpiece(path, settings), settings)


def _finish(
    path: Path, pipeline: Tokenizer, tokens: dict[str, AddedToken], settings: TokenizerConfig
) -> tuple[Tokenizer, dict[str, Any]]:
    ends_words = isinstance(pipeline.model, models.BPE) and pipeline.model.end_of_word_suffix == WORD_END
    if ends_words and isinstance(pipeline.decoder, decoders.ByteLevel):  # as transformers does for CLIP
        spaces = [decoders.Replace(WORD_END, " "), decoders.Strip(" ", 0, 1)]
        pipeline.decoder = decoders.Sequence([decoders.ByteLevel(), *spaces])
    # As in transformers: added and special tokens are recognized in texts even if tokenizer.json does not list them.
    known = {repr(token) for token in pipeline.get_added_tokens_decoder().values()}
    _extend(pipeline, {text: one for text, one in settings.added.items() if repr(one[1]) not in known}, path)
    names = {token.content for token in pipeline.get_added_tokens_decoder().values()}
    pipeline.add_special_tokens([one for one in (*tokens.values(), *settings.extra) if one.content not in names])
    with refusing(f"{path} cannot be used; its vocabulary lacks the special tokens that it adds to a text"):
        segments = 1 in pipeline.encode("", "").type_ids and settings.kind not in WITHOUT_SEGMENTS
    inputs = ("input_ids", "token_type_ids", "attention_mask") if segments else ("input_ids", "attention_mask")
    return pipeline, {
        "special_tokens": {role: token.content for role, token in tokens.items()},
        "max_length": settings.max_length,
        "truncation_side": settings.truncation_side,
        "model_input_names": settings.inputs or inputs,
        "chat_template": settings.chat_template,
    }


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
    for role in ("unk_token", "cls_token", "sep_token"):
        if role not in tokens:
            name = settings.names.get(role, (MPNET if settings.kind == "mpnet" else BERT)[role])
            raise InputError(f"{path} has no line for the {role} {name!r}; the tokenizer needs it")
    pipeline = Tokenizer(models.WordPiece(vocabulary, unk_token=tokens["unk_token"].content))
    pipeline.normalizer = _bert_normalizer(settings)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    _extend(pipeline, added, path)
    ends = _numbered(pipeline, tokens["sep_token"]), _numbered(pipeline, tokens["cls_token"])
    if settings.kind == "mpnet":
        _strip_before_mask(tokens, settings)
        pipeline.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=False)
    else:
        pipeline.post_processor = processors.BertProcessing(*ends)
    return pipeline, tokens


def _bert_normalizer(settings: TokenizerConfig) -> normalizers.Normalizer:
    return normalizers.BertNormalizer(
        lowercase=settings.flag("do_lower_case") is not False,
        strip_accents=settings.flag("strip_accents"),
        handle_chinese_chars=settings.flag("tokenize_chinese_chars") is not False,
    )


def _strip_before_mask(tokens: dict[str, AddedToken], settings: TokenizerConfig) -> None:
    """In the training of RoBERTa, MPNet and others, the mask replaced a word together with the space before it."""
    if isinstance(settings.names.get("mask_token", ""), str) and "mask_token" in tokens:
        tokens["mask_token"] = AddedToken(tokens["mask_token"].content, lstrip=True, normalized=False, special=True)


def read_vocabulary_ids(path: Path) -> dict[str, int]:
    vocabulary = read_object(path)
    for token, number in vocabulary.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**32:
            raise InputError(f"{path}: the id of {token!r} should be a whole number from 0, not {number!r}")
    if not vocabulary or len(set(vocabulary.values())) < len(vocabulary):
        raise InputError(f"{path} should give every token a unique id, but it is empty or repeats an id")
    return vocabulary


def _bytelevel(path: Path, settings: TokenizerConfig) -> tuple[Tokenizer, dict[str, AddedToken]]:
    vocabulary = read_vocabulary_ids(path)
    merges = _merges(path.with_name("merges.txt"))
    if settings.kind in ("openai-gpt", "openaigpt"):
        return _openai_gpt(path, vocabulary, merges, settings)
    added, is_clip = settings.added, settings.kind == "clip"
    tokens = settings.tokens(vocabulary.keys() | added.keys())
    if is_clip and not {"bos_token", "eos_token", "unk_token"} <= tokens.keys():
        raise InputError(f"{path} lacks '<|startoftext|>' or '<|endoftext|>', which CLIP's tokenizer adds to a text")
    # CLIP's tokens say whether a word ends.
    options = {"unk_token": tokens["unk_token"].content, "end_of_word_suffix": WORD_END} if is_clip else {}
    with refusing(f"{path} and its merges.txt do not belong together"):
        pipeline = Tokenizer(models.BPE(vocabulary, merges, **options))
    space = settings.flag("add_prefix_space") is True
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    pipeline.decoder = decoders.ByteLevel()
    _extend(pipeline, added, path)
    if is_clip:
        _make_clip(pipeline, tokens)
        return pipeline, tokens
    if settings.kind in LIKE_ROBERTA:
        if not {"cls_token", "sep_token"} <= tokens.keys():
            raise InputError(f"{path} lacks '<s>' or '</s>', which a {settings.kind} tokenizer adds to a text")
        _strip_before_mask(tokens, settings)
        pipeline.post_processor = processors.RobertaProcessing(
            _numbered(pipeline, tokens["sep_token"]), _numbered(pipeline, tokens["cls_token"]), add_prefix_space=space
        )
        return pipeline, tokens
    pipeline.post_processor = offsets = processors.ByteLevel(trim_offsets=False)
    if settings.flag("add_bos_token") and "bos_token" in tokens:
        bos = tokens["bos_token"].content
        template = processors.TemplateProcessing(
            single=[bos, "$A"],
            pair=[bos, "$A", f"{bos}:1", "$B:1"],
            special_tokens=[_numbered(pipeline, tokens["bos_token"])],
        )
        pipeline.post_processor = processors.Sequence([offsets, template])
    return pipeline, tokens


def _make_clip(pipeline: Tokenizer, tokens: Mapping[str, AddedToken]) -> None:
    """Convert texts as CLIP does: to lower case, with one space between words, and with its special tokens."""
    pipeline.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CLIP_WORD), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    pipeline.post_processor = processors.RobertaProcessing(
        _numbered(pipeline, tokens["eos_token"]),
        _numbered(pipeline, tokens["bos_token"]),
        trim_offsets=False,
        add_prefix_space=False,
    )


def _openai_gpt(
    path: Path, vocabulary: dict[str, int], merges: list[tuple[str, str]], settings: TokenizerConfig
) -> tuple[Tokenizer, dict[str, AddedToken]]:
    """The first GPT's BPE of lowercase words, whose last pieces end with </w>; words are those of BERT."""
    tokens = settings.tokens(vocabulary.keys() | settings.added.keys())
    unknown = settings.names.get("unk_token", "<unk>")
    if unknown in vocabulary:
        tokens["unk_token"] = AddedToken(unknown, normalized=False, special=True)
    if "unk_token" not in tokens:
        raise InputError(f"{path} lacks '<unk>', which an openai-gpt tokenizer needs")
    with refusing(f"{path} and its merges.txt do not belong together"):
        pipeline = Tokenizer(
            models.BPE(vocabulary, merges, unk_token=tokens["unk_token"].content, end_of_word_suffix=WORD_END)
        )
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.BPEDecoder(suffix=WORD_END)
    _extend(pipeline, settings.added, path)
    return pipeline, tokens


def _sentencepiece(path: Path, settings: TokenizerConfig) -> tuple[Tokenizer, dict[str, AddedToken]]:
    """The tokenizer of a SentencePiece model, with the special tokens that the model family adds."""
    from regard.text import sentencepiece

    model, kind = sentencepiece.read_sentencepiece(path), settings.kind
    is_mbart50 = str(settings.values.get("tokenizer_class", "")).startswith("MBart50")
    if kind in FAIRSEQ:
        num_languages = 0 if "mbart" not in kind else len(sentencepiece.LANGUAGES) if is_mbart50 else 25
        model = sentencepiece.fairseq_model(model, kind, num_languages)
    elif kind == "t5":
        model = sentencepiece.with_sentinels(model, settings.values.get("extra_ids", 100))
    document = model.tokenizer_document()
    steps = document["normalizer"]["normalizers"]
    is_deberta = BY_KIND.get(kind) is DEBERTA
    if kind == "albert":
        steps[:0] = sentencepiece.albert_steps(
            keep_accents=settings.flag("keep_accents") is True, lowercase=settings.flag("do_lower_case") is not False
        )
    elif is_deberta and settings.flag("do_lower_case"):
        steps[:0] = [{"type": "Lowercase"}]
    if is_deberta and settings.flag("split_by_punct"):
        raise InputError(f"{path}: split_by_punct is true, which Regard does not support; use tokenizer.json instead")
    pipeline = load_document(json.dumps(document), path)
    added = settings.added
    texts = {piece.text for piece in model.pieces}
    tokens = settings.tokens(texts | added.keys())
    control = [piece.text for piece in model.pieces if piece.type == sentencepiece.CONTROL]
    user_defined = [piece.text for piece in model.pieces if piece.type == sentencepiece.USER_DEFINED]
    pipeline.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in control])
    if model.model_type == sentencepiece.BPE:
        pipeline.add_tokens([AddedToken(text, normalized=False) for text in user_defined])
    _extend(pipeline, added, path)
    if not is_deberta:
        _strip_before_mask(tokens, settings)
    before, between, after = _sentencepiece_template(settings, tokens, is_mbart50=is_mbart50)
    if before or after:
        segment = ":1" if kind == "albert" or is_deberta else ":0"
        pipeline.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[*before, "$A", *between, *(part + segment for part in ("$B", *after))],
            special_tokens=[
                _numbered(pipeline, AddedToken(text)) for text in dict.fromkeys((*before, *between, *after))
            ],
        )
    return pipeline, tokens


def _sentencepiece_template(
    settings: TokenizerConfig, tokens: Mapping[str, AddedToken], *, is_mbart50: bool
) -> tuple[list[str], list[str], list[str]]:
    """The special tokens before a text, between the texts of a pair, and at the end."""
    text = {role: token.content for role, token in tokens.items()}
    kind, end = settings.kind, text.get("eos_token", "</s>")
    if "mbart" in kind:
        language = str(settings.values.get("src_lang") or "en_XX")
        return ([language], [], [end]) if is_mbart50 else ([], [], [end, language])
    if kind in FAIRSEQ:
        return [text.get("cls_token", "<s>")], [end, end], [end]
    if kind == "t5":
        return [], [end], [end]
    if {"cls_token", "sep_token"} <= text.keys():
        return [text["cls_token"]], [text["sep_token"]], [text["sep_token"]]
    before = [text["bos_token"]] if "bos_token" in text and settings.flag("add_bos_token") is not False else []
    after = [end] if settings.flag("add_eos_token") is True else []
    return before, [*after, *before], after


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
    return f"{folder} has no tokenizer; expected {EXPECTED} in it"
