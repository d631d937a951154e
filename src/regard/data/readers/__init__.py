"""Reads examples from files. Formats and columns are inferred and described; errors name file and line."""

from regard.data.readers.choices import read_choice_examples
from regard.data.readers.conll import (
    detect_scheme,
    holds_tagged_words,
    is_tag,
    read_tagged_examples,
    split_words,
    to_iob2,
)
from regard.data.readers.images import holds_images, read_image_examples
from regard.data.readers.memory import RecordList
from regard.data.readers.records import ExampleSet
from regard.data.readers.squad import holds_squad, read_question_examples
from regard.data.readers.tables import TableOptions
from regard.data.readers.texts import read_text_examples

__all__ = [
    "ExampleSet",
    "RecordList",
    "TableOptions",
    "detect_scheme",
    "holds_images",
    "holds_squad",
    "holds_tagged_words",
    "is_tag",
    "read_choice_examples",
    "read_image_examples",
    "read_question_examples",
    "read_tagged_examples",
    "read_text_examples",
    "split_words",
    "to_iob2",
]
