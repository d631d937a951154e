"""Chapter: Fine-tuning and features."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="fine-tuning",
    title="Fine-tuning and features",
    summary="One small layer per task on top of a pretrained model, or its vectors as features of another classifier.",
    parts=(),
    reading=(
        "devlin2019",
        "sanh2019",
        "socher2013",
        "rajpurkar2016",
        "tjong2003",
        "wang2018",
        "zellers2018",
        "alammar2019",
    ),
)
