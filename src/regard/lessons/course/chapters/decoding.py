"""Chapter: Decoding: from probabilities to words."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="decoding",
    title="Decoding: from probabilities to words",
    summary="The decoding loop, the final softmax, training on six words, and greedy search, beam search and sampling.",
    parts=(),
    reading=("vaswani2017", "wu2016", "holtzman2020"),
)
