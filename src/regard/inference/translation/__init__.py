"""Translation with a trained encoder-decoder: subwords, search, alignments, BLEU and folders."""

from regard.inference.translation.folder import load_translator
from regard.inference.translation.translator import Translation, Translator

__all__ = ["Translation", "Translator", "load_translator"]
