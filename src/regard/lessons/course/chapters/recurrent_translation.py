"""Chapter: Recurrent translation and its bottleneck."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="recurrent-translation",
    title="Recurrent translation and its bottleneck",
    summary="An encoder puts a sentence into one vector, a decoder writes from it; long sequences do not fit.",
    parts=(),
    reading=("sutskever2014", "cho2014", "hochreiter1997", "alammar2018nmt"),
)
