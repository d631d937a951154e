"""Translation with an encoder-decoder model: subwords, search, alignments, BLEU and model folders."""

from regard.inference.translation.folder import load_translator
from regard.inference.translation.translator import Translation, Translator

__all__ = ["Translation", "Translator", "load_translator"]
