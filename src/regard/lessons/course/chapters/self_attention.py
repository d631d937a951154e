"""Chapter: Self-attention, heads and masks."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="self-attention",
    title="Self-attention, heads and masks",
    summary="Queries, keys and values of one sentence, several heads side by side, and the mask that hides the future.",
    parts=(),
    reading=("vaswani2017", "alammar2018transformer"),
)
