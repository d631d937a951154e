"""Chapter: GPT and what one asks of it."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="gpt",
    title="GPT and what one asks of it",
    summary="A decoder that continues its prompt: its inputs, its probabilities, its benchmarks and its cost.",
    parts=(),
    reading=(
        "radford2018",
        "radford2019",
        "brown2020",
        "chowdhery2022",
        "wei2022",
        "wang2021",
        "paperno2016",
        "sakaguchi2020",
        "zellers2019",
        "bisk2020",
        "bender2021",
        "searle1980",
        "dietterich2019",
    ),
)
