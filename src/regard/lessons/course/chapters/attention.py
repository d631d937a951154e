"""Chapter: Attention and its five steps."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="attention",
    title="Attention and its five steps",
    summary="The decoder looks at every encoder state: scores, softmax, a weighted sum, and the alignment they give.",
    parts=(),
    reading=("bahdanau2015", "luong2015", "alammar2018nmt"),
)
