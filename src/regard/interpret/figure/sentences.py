"""A few sentences of our own, over which the damage of a switch is measured besides the user's. Plain data."""

from __future__ import annotations

import re

__all__ = ["ENGLISH", "PAIRS", "sentences_for"]

ENGLISH = (
    "The old man walked to the house by the river.",
    "She opened the window because it was warm.",
    "The children went to school in the morning.",
    "He wrote a letter to his brother.",
    "The king and the queen lived in a castle.",
)

# The same in three languages; each pair of them serves translators in both directions.
PAIRS: dict[str, tuple[str, ...]] = {
    "en": (
        "The dog sleeps in the garden.",
        "I would like to go home now.",
        "Where is the nearest station?",
        "My sister has bought a new car.",
        "We have known each other for many years.",
    ),
    "de": (
        "Der Hund schläft im Garten.",
        "Ich möchte jetzt nach Hause gehen.",
        "Wo ist der nächste Bahnhof?",
        "Meine Schwester hat ein neues Auto gekauft.",
        "Wir kennen uns seit vielen Jahren.",
    ),
    "fr": (
        "Le chien dort dans le jardin.",
        "Je voudrais rentrer à la maison maintenant.",
        "Où est la gare la plus proche ?",
        "Ma sœur a acheté une nouvelle voiture.",
        "Nous nous connaissons depuis de nombreuses années.",
    ),
}
LANGUAGES = re.compile(rf"(?:^|[^a-z])({'|'.join(PAIRS)})-({'|'.join(PAIRS)})/?$")


def sentences_for(name: str, *, translates: bool) -> tuple[tuple[str, str | None], ...]:
    """Texts, each with its translation where the model translates.

    A translator's languages are the end of its name, such as regard-de-en; there are none for other names.
    """
    if not translates:
        return tuple((text, None) for text in ENGLISH)
    found = LANGUAGES.search(name)
    return () if found is None else tuple(zip(PAIRS[found[1]], PAIRS[found[2]], strict=True))
