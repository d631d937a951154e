"""Files to examples: what a file holds is decided from it, said in a line, and every error names its line."""

from regard.data.readers.choices import read_choices
from regard.data.readers.conll import read_tagged
from regard.data.readers.images import read_pictures
from regard.data.readers.read import Read
from regard.data.readers.schemes import scheme_of, to_iob2
from regard.data.readers.squad import read_questions
from regard.data.readers.texts import read_texts
from regard.data.readers.words import words_of

__all__ = [
    "Read",
    "read_choices",
    "read_pictures",
    "read_questions",
    "read_tagged",
    "read_texts",
    "scheme_of",
    "to_iob2",
    "words_of",
]
