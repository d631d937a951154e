"""Translation with an encoder-decoder model: subwords, search, alignments, BLEU and model folders."""

from regard.inference.translation.translator import Translation, Translator, load_translator

__all__ = ["Translation", "Translator", "load_translator"]
