"""Translation: pairs of sentences to a model that translates, and what it says with how it looked at the source."""

from regard.inference.translation.folder import load_translator
from regard.inference.translation.translator import Translation, Translator

__all__ = ["Translation", "Translator", "load_translator"]
