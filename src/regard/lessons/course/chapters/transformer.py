"""Chapter: The Transformer."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="transformer",
    title="The Transformer",
    summary="Positions, residual connections, layer norm and feed-forward networks: Figure 1 of the paper box by box.",
    parts=(),
    reading=("vaswani2017", "ba2016", "he2016", "xiong2020", "raffel2020", "alammar2018transformer"),
)
