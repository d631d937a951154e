"""The names that columns have in the files people use, in the order in which they are believed.

Plain data: no file, no row.
"""

from __future__ import annotations

import re

__all__ = ["LABELS", "PAIRS", "SCORES", "TEXTS", "fold", "is_known"]

TEXTS = (
    "text", "sentence", "comment_text", "comment", "review", "review_text", "tweet", "message", "sms", "content",
    "body", "document", "article", "utterance", "phrase", "query", "question", "description",
    "headline", "title", "input",
)  # fmt: skip

PAIRS = (
    ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("sentence_a", "sentence_b"), ("question1", "question2"),
    ("premise", "hypothesis"), ("text_a", "text_b"), ("text1", "text2"), ("text_1", "text_2"), ("first", "second"),
    ("text", "second"), ("question", "sentence"), ("question", "context"), ("query", "passage"), ("query", "document"),
    ("s1", "s2"), ("#1_string", "#2_string"),
)  # fmt: skip

# `gold_label` stands beside single annotators' label1 to label5 in MNLI and SNLI.
LABELS = (
    "gold_label", "label", "labels", "is_duplicate", "target", "class", "category", "categories", "sentiment",
    "polarity", "intent", "topic", "quality", "judgment", "entailment_judgment", "score", "rating", "stars", "y",
)  # fmt: skip

SCORES = (
    "score",
    "similarity",
    "similarity_score",
    "relatedness_score",
    "label",
    "target",
    "rating",
    "stars",
    "value",
    "y",
)

_KNOWN = {*TEXTS, *LABELS, *SCORES, *(name for pair in PAIRS for name in pair)}


def fold(name: str) -> str:
    """A name without what people vary: capitals, blanks for underscores, hyphens."""
    return re.sub(r"[\s-]+", "_", name.strip().strip('"').casefold())


def is_known(name: str) -> bool:
    """Whether this is one of the names, so that a row which holds it may be a header."""
    return fold(name) in _KNOWN
