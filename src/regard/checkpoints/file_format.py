"""What a file format declares: the keys of config.json and the names of tensors, for each family of models.

Each module of `regard.checkpoints.formats` declares those of the family of its name, for transformers (`FORMAT`) and
for the architectures of GGUF files (`GGUF`). A family without a module has Regard's own format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Table = Mapping[str, str | tuple[str, ...]]
NOTHING = "(?!)"  # a pattern that matches no name
SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    "max_position_embeddings",
)
# Output heads: how the name of transformers' class ends. The first entry counts whose heads a model has.
CLASSES: Mapping[tuple[str, ...], str] = {
    ("mlm_head", "nsp_head"): "ForPreTraining",
    ("nsp_head",): "ForNextSentencePrediction",
    ("discriminator",): "ForPreTraining",
    ("mlm_head",): "ForMaskedLM",
    ("output",): "ForCausalLM",
    ("classifier",): "ForImageClassification",
    ("distillation_classifier",): "ForImageClassificationWithTeacher",
    (): "Model",
}
# How the names of transformers' classes with a task head end. On tokens a head is one layer unless a format says more.
TOKEN_HEADS = ("TokenClassification", "QuestionAnswering")
IMAGE_HEADS = ("ImageClassification", "ImageClassificationWithTeacher")
HEADS = ("SequenceClassification", "MultipleChoice", *TOKEN_HEADS, *IMAGE_HEADS)


def same_tensor(name: str, tensor: Any) -> Any:
    return tensor


@dataclass(frozen=True)
class TensorNames:
    """Regard's parameter names and their names in transformers' files; those that a model does not have do not count.

    `prefix` precedes the names of the base model and may be missing in a file, or be one of `old_prefixes`. `layers`
    maps the path of each stack (ours, theirs) to the names inside one layer. `output_heads` are optional. `copies`
    names tensors that a file may store twice, and their originals; `buffers` matches names that are not weights,
    without the prefix; `transposed` matches our names of matrices that the file stores transposed, `squeezed` those of
    tensors (1, T, W) that it stores without dimensions of size 1; `convert(name, tensor)` undoes another convention of
    a GGUF file for one of its tensors; `decode(ours, tensor)` converts the joined parts of a file to our tensor, and
    `encode` is its inverse; `shared` matches names in `output_heads` that fine-tuned models have too. Several names of
    theirs are parts of one tensor of ours, of equal size unless `qkv_sizes` gives the sizes of queries, keys and
    values. `{p}` stands for weight or bias, `{base}` for the prefix. `class_prefixes` are prefixes of classes that
    differ, by their endings.
    """

    prefix: str = ""
    base: Table = field(default_factory=dict)
    layers: Mapping[tuple[str, str], Table] = field(default_factory=dict)
    output_heads: Mapping[str, Table] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    buffers: str = NOTHING
    transposed: str = NOTHING
    squeezed: str = NOTHING
    convert: Callable[[str, Any], Any] = same_tensor
    decode: Callable[[str, Any], Any] = same_tensor
    encode: Callable[[str, Any], Any] = same_tensor
    shared: str = NOTHING
    qkv_sizes: tuple[int, int, int] | None = None
    old_prefixes: tuple[str, ...] = ()
    class_prefixes: Mapping[str, str] = field(default_factory=dict)

    def of_class(self, document: Mapping[str, Any]) -> TensorNames:
        """Return the names in the files of the class that a config.json names."""
        classes = document.get("architectures")
        name = str(classes[0]) if isinstance(classes, list) and classes else ""
        prefix = next((prefix for ending, prefix in self.class_prefixes.items() if name.endswith(ending)), None)
        return self if prefix is None else replace(self, prefix=prefix)


def qkv(before: str, names: tuple[str, str, str]) -> tuple[str, ...]:
    """Return the names of the three projections that Regard stores as one matrix."""
    return tuple(f"{before}{name}.{{p}}" for name in names)


def prefixed(table: Table, ours: str, theirs: str) -> dict[str, str | tuple[str, ...]]:
    """Return a table of names with prefixes, for layers that the files of a family do not number as Regard does."""
    return {
        ours + name: theirs + other if isinstance(other, str) else tuple(theirs + one for one in other)
        for name, other in table.items()
    }


def keys_of(config_class: Any, *, without: Collection[str] = (), **renamed: str) -> dict[str, str]:
    """Return the key of each field of a config: its own name, or the one in `renamed`."""
    names = (item.name for item in fields(config_class) if item.name != "family")
    return {name: renamed.get(name, name) for name in names if name not in without}


def _unchanged(*_: Any) -> None:
    """Leave the fields as they are."""


@dataclass(frozen=True)
class FileFormat:
    """The file format of a family in transformers: config.json keys by field name, required values and tensor names.

    A dot in a key leads into a section: "text_config.hidden_size". `fixed` lists keys that must have these values if
    they are present, `defaults` fields with another default than the config's, `written` constant keys of a new file.
    `read(fields, document)` completes the fields read from config.json; `write(document, fields)` completes a new one.
    `class_prefix` begins the names of transformers' classes: "Bert" in BertForSequenceClassification; `classes` tells
    how they end. `task_heads` maps the classes to the names of the head's layers. A task on one vector per text whose
    class is missing is stored as SequenceClassification; a task on tokens whose class is missing has one layer, if the
    family has `token_heads`.
    `head_values` lists keys that change the computation of a published head, with the supported values; `pooling_key`
    is the one of them that says how a text becomes one vector, cls or mean.

    Files that came with code of their authors: `code` matches the names of the classes that compute what the family
    does, so that `auto_map` has no effect; `aliases` are their names of keys, `code_keys` keys without effect, and
    `old_model_types` and `old_class_prefixes` their model types and classes. `variants` gives the family of a file in
    which a key has a value.
    """

    keys: Mapping[str, str]
    tensor_names: TensorNames | Callable[[Any], TensorNames]  # or a function of the config
    fixed: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    written: Mapping[str, object] = field(default_factory=dict)
    optional: tuple[str, ...] = ()  # sizes that a file may leave out
    read: Callable[[dict[str, Any], Mapping[str, object]], None] = _unchanged
    write: Callable[[dict[str, Any], Mapping[str, Any]], None] = _unchanged
    aliases: Mapping[str, str] = field(default_factory=dict)
    code: str = NOTHING
    code_keys: tuple[str, ...] = ()
    variants: Mapping[tuple[str, object], str] = field(default_factory=dict)
    old_model_types: tuple[str, ...] = ()
    old_class_prefixes: tuple[str, ...] = ()
    class_prefix: str = ""
    classes: Mapping[tuple[str, ...], str] = field(default_factory=lambda: CLASSES)
    model_type: str = ""  # in config.json; "" if it is the name of the family
    task_heads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    token_heads: bool = True
    head_values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    pooling_key: str = ""

    def names(self, config: Any) -> TensorNames:
        """Return the tensor names of a model with this config."""
        return self.tensor_names if isinstance(self.tensor_names, TensorNames) else self.tensor_names(config)

    def supports(self, head: str) -> bool:
        """Whether Regard reads and writes the class of transformers with this task head."""
        one_layer = self.token_heads and "SequenceClassification" in self.task_heads
        return head in self.task_heads or (head in TOKEN_HEADS and one_layer)

    def architecture(self, output_heads: Collection[str]) -> str:
        """Return the name of transformers' class with these heads."""
        return self.class_prefix + next(end for heads, end in self.classes.items() if set(heads) <= set(output_heads))


def _module(family: str) -> ModuleType | None:
    name = f"regard.checkpoints.formats.{family.replace('-', '_')}"
    return import_module(name) if find_spec(name) else None


def format_of(family: str) -> FileFormat | None:
    """Return the format of a family's files in transformers; None: it has Regard's own."""
    return getattr(_module(family), "FORMAT", None)


def gguf_formats(family: str) -> Mapping[str, FileFormat]:
    """Return the formats of a family's GGUF files by the name of their architecture."""
    return getattr(_module(family), "GGUF", {})
