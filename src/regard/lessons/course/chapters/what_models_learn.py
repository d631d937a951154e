"""Chapter: What models learn, and whether attention explains."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="what-models-learn",
    title="What models learn, and whether attention explains",
    summary="Patterns of heads, associations of words, images as sequences, and tests of what an explanation is worth.",
    parts=(),
    reading=(
        "vig2019",
        "clark2019",
        "pearce2021",
        "jain2019",
        "wiegreffe2019",
        "rudin2019",
        "abnar2020",
        "sundararajan2017",
        "dosovitskiy2021",
    ),
)
