"""Texts of many kinds for training `regard-embed`, made from running text: one text per line.

Sentences, two neighboring sentences, whole paragraphs, short spans, questions, headlines and captions. The teacher's
vectors are the targets, so a question need not be a good one: it only has to look like one. Texts of one paragraph are
neighbors in the file, so that a batch that keeps neighbors together has texts that are hard to tell apart. Text that
shares eight words in a row with an evaluation set, or a whole text, is left out.
"""

from __future__ import annotations

import csv
import gzip
import json
import multiprocessing
import os
import random
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from regard.data.files import open_text

SEED = 0
BLOCK = 4_000_000  # characters of a corpus that a process works on at once
SHINGLE = 8  # words in a row that a text must not share with an evaluation set
MAX_CHARACTERS = 1400  # of a paragraph: about 256 tokens
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[A-Z0-9])")
WORD = re.compile(r"[a-z0-9]+")

# How often each sentence of a paragraph gives a text of each kind.
SENTENCE, TWO_SENTENCES, SPAN, QUESTION, HEADLINE = 0.65, 0.15, 0.28, 0.22, 0.08
PARAGRAPH = 0.6  # of paragraphs with at least three sentences
NUM_CAPTIONS = 150_000

ASKED_PARTS = ("Who", "What", "Which", "When", "Where", "Why", "How", "How many", "How much", "In what year", "Whose")
ASKED_SPANS = (
    "What is {}?", "What are {}?", "What was {}?", "What does {} mean?", "Who is {}?", "Who was {}?", "When did {}?",
    "When was {}?", "Where is {}?", "Where did {}?", "Where was {}?", "Why did {}?", "Why is {}?", "How did {}?",
    "How does {} work?", "How do I {}?", "How can I {}?", "How many {}?", "How long {}?", "What is the best way to {}?",
    "What is the name of {}?", "What type of {}?", "What kind of {}?", "Is it possible to {}?", "Should I {}?",
    "Can you {}?", "Do {}?", "Does {}?", "Is there {}?", "Which {}?", "What happened to {}?", "What caused {}?",
    "Who wrote {}?", "What is the difference between {} and {}?", "{}?",
)  # fmt: skip
SMALL_WORDS = {"the", "a", "an", "was", "were", "is", "are", "had", "has", "have", "been", "that", "which", "who"}

IRREGULAR = {"man": "men", "woman": "women", "child": "children", "person": "people", "knife": "knives"}
SUBJECTS = (
    "man", "woman", "boy", "girl", "child", "baby", "dog", "cat", "horse", "bird", "person", "chef", "soldier",
    "police officer", "teacher", "musician", "worker", "farmer", "old man", "young woman", "little girl", "kitten",
    "puppy", "monkey", "panda", "group of people", "couple", "crowd", "team", "football player", "dancer", "cyclist",
    "driver", "skater", "swimmer", "student", "tiger", "elephant", "train", "car", "bus", "plane", "boat", "lady",
)  # fmt: skip
ADJECTIVES = (
    "black", "white", "brown", "red", "blue", "green", "yellow", "small", "large", "wet", "happy", "young", "old",
    "tall", "smiling", "tired", "wooden", "empty", "colorful", "striped",
)  # fmt: skip
ACTIONS = (
    "playing {}", "holding {}", "eating {}", "cutting {}", "slicing {}", "peeling {}", "cooking {}", "washing {}",
    "carrying {}", "throwing {}", "catching {}", "kicking {}", "riding {}", "driving {}", "pushing {}", "pulling {}",
    "jumping over {}", "climbing {}", "looking at {}", "pointing at {}", "standing next to {}", "sitting on {}",
    "lying on {}", "running through {}", "walking past {}", "swimming in {}", "dancing near {}", "sleeping on {}",
    "reading {}", "writing on {}", "painting {}", "drawing {}", "opening {}", "closing {}", "pouring {}", "mixing {}",
    "drinking {}", "talking about {}", "waiting for {}", "chasing {}", "feeding {}", "brushing {}", "fixing {}",
    "lifting {}", "dropping {}", "folding {}", "singing in front of {}", "waving from {}", "hiding behind {}",
)  # fmt: skip
OBJECTS = (
    "guitar", "piano", "flute", "violin", "drum", "ball", "bicycle", "motorcycle", "horse", "car", "onion", "potato",
    "tomato", "carrot", "fish", "piece of bread", "cake", "sandwich", "bowl of soup", "glass of water", "cup of coffee",
    "book", "newspaper", "letter", "phone", "camera", "computer", "table", "chair", "bench", "bed", "sofa", "wall",
    "fence", "tree", "river", "lake", "beach", "field", "street", "bridge", "building", "house", "window", "door",
    "box", "bag", "hat", "shirt", "rope", "ladder", "knife", "sword", "gun", "toy", "stick", "flag", "rock",
    "snowy hill", "swimming pool", "kitchen", "stage", "train station", "airport", "market", "park", "garden", "fire",
)  # fmt: skip


def write_texts(
    corpora: Iterable[Path],
    tatoeba: Iterable[Path],
    output: Path,
    *,
    exclude: Iterable[Path],
    seed: int = SEED,
    processes: int | None = None,
    limit: int | None = None,
) -> int:
    """Write the texts, each once, and return their number. `limit` is the number of blocks of each corpus to read."""
    excluded = Excluded(text for path in exclude for text in evaluation_texts(path))
    seen: set[int] = set()
    blocks = (
        (seed, number, index, block)
        for number, path in enumerate(corpora)
        for index, block in enumerate(islice(read_blocks(path), limit))
    )
    with (
        multiprocessing.Pool(processes, initializer=_start, initargs=(excluded,)) as pool,
        output.open("w", encoding="utf-8") as file,
    ):
        others = pool.imap(_other_texts, [(seed, list(map(os.fspath, tatoeba)))])
        for group in chain(pool.imap(_block_texts, blocks), others):
            for text in group:
                if text and (key := hash(text)) not in seen:
                    seen.add(key)
                    file.write(text + "\n")
    return len(seen)


def read_blocks(path: Path) -> Iterator[str]:
    """Blocks of whole documents."""
    lines: list[str] = []
    size = 0
    with open_text(path) as source:
        for line in source:
            lines.append(line)
            size += len(line)
            if size > BLOCK and not line:
                yield "\n".join(lines)
                lines, size = [], 0
    yield "\n".join(lines)


def read_zip(path: Path) -> list[str]:
    """The lines of the largest file of an archive."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
        return archive.read(largest).decode("utf-8").splitlines()


def evaluation_texts(path: Path) -> Iterator[str]:
    """All texts of SQuAD's JSON, or all cells of a tab-separated file."""
    if ".json" in path.name:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for article in json.load(file)["data"]:
                for paragraph in article["paragraphs"]:
                    yield paragraph["context"]
                    yield from (question["question"] for question in paragraph["qas"])
        return
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield from row


class Excluded:
    """Checksums of texts that must not be trained on, and of every eight words in a row in them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.sums: set[int] = set()
        for text in texts:
            words = WORD.findall(text.lower())
            self.sums.add(zlib.crc32(" ".join(words).encode()))
            self.sums.update(_shingles(words))

    def __contains__(self, text: str) -> bool:
        words = WORD.findall(text.lower())
        return zlib.crc32(" ".join(words).encode()) in self.sums or not self.sums.isdisjoint(_shingles(words))


def _shingles(words: list[str]) -> Iterator[int]:
    return (zlib.crc32(" ".join(words[i : i + SHINGLE]).encode()) for i in range(len(words) - SHINGLE + 1))


_excluded = Excluded(())


def _start(excluded: Excluded) -> None:
    global _excluded
    _excluded = excluded


def _block_texts(task: tuple[int, int, int, str]) -> list[str]:
    """All texts of a block of a corpus."""
    seed, number, index, block = task
    generator = random.Random(f"{seed} {number} {index}")
    texts: list[str] = []
    for document in block.split("\n\n"):
        title = ""
        for line in document.split("\n"):
            line = line.strip()
            title = title or line[:100]
            if line and line not in _excluded:
                texts += paragraph_texts(line, title, generator)
    return texts


def _other_texts(task: tuple[int, list[str]]) -> list[str]:
    """The English sentences of Tatoeba, and captions."""
    seed, files = task
    generator = random.Random(f"{seed} captions")
    sentences: dict[str, None] = {}
    for path in files:
        sentences |= dict.fromkeys(line.split("\t")[0].strip() for line in read_zip(Path(path)))
    captions = (caption(generator) for _ in range(NUM_CAPTIONS))
    return [text for text in (*sentences, *captions) if text and text not in _excluded]


def paragraph_texts(paragraph: str, title: str, generator: random.Random) -> list[str]:
    """The texts of one paragraph, next to one another."""
    sentences = [sentence for sentence in SENTENCE_END.split(paragraph) if len(sentence) > 2]
    if len(paragraph.split()) <= 6:  # a heading
        heading = paragraph.rstrip(".")
        return [heading, f"{title}: {heading}"][: 1 + (generator.random() < 0.2 and title != paragraph)]
    texts = []
    if len(sentences) >= 3 and generator.random() < PARAGRAPH:
        texts.append(shorten(paragraph))
    for number, sentence in enumerate(sentences):
        words = sentence.split()[:60]
        if generator.random() < SENTENCE:
            texts.append(" ".join(words))
        if number + 1 < len(sentences) and generator.random() < TWO_SENTENCES:
            texts.append(shorten(f"{sentence} {sentences[number + 1]}"))
        if len(words) < 4:
            continue
        if generator.random() < SPAN:
            texts.append(span(words, generator, 1, 12))
        if generator.random() < QUESTION:
            texts.append(question(words, generator))
        if generator.random() < HEADLINE:
            texts.append(headline(words, title, generator))
    return texts


def shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS].rpartition(" ")[0]


def span(words: list[str], generator: random.Random, least: int, most: int) -> str:
    """Some words in a row, without punctuation around them."""
    size = min(generator.randint(least, most), len(words))
    start = generator.randint(0, len(words) - size)
    return " ".join(words[start : start + size]).strip(" .,;:!?\"'()[]-")


def question(words: list[str], generator: random.Random) -> str:
    """A sentence whose first words are asked for, or a question about some words in a row."""
    if generator.random() < 0.45:
        gone = generator.randint(1, min(5, len(words) - 2))
        rest = " ".join(words[gone : gone + generator.randint(4, 14)]).rstrip(" .,;:!?")
        return f"{generator.choice(ASKED_PARTS)} {rest}?"
    pattern = generator.choice(ASKED_SPANS)
    spans = (span(words, generator, 2, 9) for _ in range(2))
    asked = pattern.format(*spans)
    return asked[0].upper() + asked[1:]


def headline(words: list[str], title: str, generator: random.Random) -> str:
    """The first words without small words, sometimes in title case or after the title of the document."""
    kept = [word.strip(",;:\"'()") for word in words if word.lower() not in SMALL_WORDS]
    text = " ".join(kept[: generator.randint(4, 11)]).rstrip(".")
    if generator.random() < 0.3:
        text = text.title()
    return f"{title}: {text}" if generator.random() < 0.3 else text


def plural(name: str) -> str:
    head, _, rest = name.partition(" of ")
    start, _, noun = head.rpartition(" ")
    if noun in IRREGULAR:
        noun = IRREGULAR[noun]
    elif noun.endswith("y") and noun[-2] not in "aeiou":
        noun = noun[:-1] + "ies"
    else:
        noun += "es" if noun.endswith(("s", "ch", "x", "sh", "to")) else "s"
    return " ".join(part for part in (start, noun, rest and f"of {rest}") if part)


def caption(generator: random.Random) -> str:
    """A description of a scene, such as "A young woman is slicing a tomato." """

    def thing(names: tuple[str, ...]) -> str:
        name = generator.choice(names)
        if generator.random() < 0.3:
            name = f"{generator.choice(ADJECTIVES)} {name}"
        article = generator.choice(("a", "a", "a", "the", "two", "some"))
        if article in ("two", "some"):
            return f"{article} {plural(name)}"
        return f"an {name}" if article == "a" and name[0] in "aeiou" else f"{article} {name}"

    subject = thing(SUBJECTS)
    action = generator.choice(ACTIONS).format(thing(OBJECTS))
    verb = "are" if subject.startswith(("two ", "some ")) else "is"
    verb = generator.choice((f" {verb} ", f" {verb} ", f" {verb} not ", " "))
    where = generator.choice(("", "", "", f" in the {generator.choice(OBJECTS)}", f" near {thing(OBJECTS)}"))
    text = f"{subject}{verb}{action}{where}"
    return text[0].upper() + text[1:] + generator.choice((".", ".", ""))
