"""Chapter: ELMo: vectors that depend on the context."""

from __future__ import annotations

from regard.lessons.course.chapter import Chapter

CHAPTER = Chapter(
    name="elmo",
    title="ELMo: vectors that depend on the context",
    summary="word2vec and GloVe give a word one vector; a bidirectional LSTM gives it one for every sentence.",
    parts=(),
    reading=("peters2018", "howard2018", "mikolov2013", "pennington2014", "alammar2018bert"),
)
