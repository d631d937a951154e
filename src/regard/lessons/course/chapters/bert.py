"""Chapter: BERT and its two tasks."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="bert",
    title="BERT and its two tasks",
    summary="A masked word and the next sentence: what BERT reads, predicts and learns from.",
    parts=(),
    reading=("devlin2019", "liu2019", "alammar2018bert"),
)
