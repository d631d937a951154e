"""Translation: pairs of sentences to a model that translates, and what it says with how it looked at the source."""

from regard.translate.folder import load
from regard.translate.translator import Translation, Translator

__all__ = ["Translation", "Translator", "load"]
