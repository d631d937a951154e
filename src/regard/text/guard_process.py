"""A program that tests a tokenizer.json: it checks the settings, then parses the file and encodes texts under limits.

It runs as a script (`python -I -S guard_process.py LIMITS < tokenizer.json`) and does not import Regard, so it starts
quickly. It prints {"wrong": ""}, or the reason to reject the file instead of "".
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

LONGEST = 1 << 20  # maximum padded length in tokens, and maximum of any other number in a pipeline step
TEXT = 1000  # maximum number of characters that a step inserts
REGEX = 20_000  # characters
REPETITIONS = 10_000  # of a part of a regex, the product of all enclosing quantifiers
GROWTH = 1000  # maximum factor by which replacements may lengthen a text
DEPTH = 16
STEPS = 500
PIECES = 1000  # entries of a template, and ids that it inserts
STEPS_OF = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
BOUNDS = {
    "truncation.max_length": (0, 1 << 63),  # a large limit is harmless
    "padding.pad_to_multiple_of": (1, LONGEST),
}
PROBES = (
    "",
    "The quick brown fox, 1,000.50$ and don't -- naïve e\u0301 \uff21 日本語 한국어 👩‍👧 \u200d \ufffd \x00\t\r\n  x_y",
    "a" * 2000 + "!",
    " " * 2000 + "\n" * 200 + "0" * 2000,
    "[MASK] <mask> </s> <|endoftext|>" * 20,
)


BLANK = "\0"
ESCAPE = re.compile(r"\\(?:[pPxukg]\{[^}]*\}?|[pPxukg]<[^>]*>?|.|\Z)", re.DOTALL)
CLASS = re.compile(r"\[\^?[^\[\]]*\]")  # without another class inside


class Wrong(Exception):
    """A setting that is out of bounds; the message is shown to the user."""


def check_document(document: object) -> None:
    """Raise Wrong for settings that could make a short text need excessive memory or time."""
    if not isinstance(document, dict):
        return  # the library reports it
    for section in ("padding", "truncation", *STEPS_OF):
        _check_section(document.get(section), section)
    truncation, model = document.get("truncation"), document.get("model")
    if truncation is not None:
        length = truncation.get("max_length") or 0
        _check_number(truncation.get("stride", 0), "truncation.stride", most=max(0, length - 1))
    if isinstance(model, dict):
        for key in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
            _check_text(model.get(key), f"model.{key}")
        _check_number(model.get("max_input_chars_per_word", 0), "model.max_input_chars_per_word")


def _check_section(content: object, section: str) -> None:
    if content is not None and not isinstance(content, dict):
        raise Wrong(f"{section} is {_short(content)}, expected an object or null")
    growth, count = 1.0, 0
    for where, depth, value in _walk(content, section):
        if depth > 2 * DEPTH:
            raise Wrong(f"the steps of {section} are nested too deeply")
        if where in BOUNDS and value is not None:
            _check_number(value, where, *BOUNDS[where])
        elif isinstance(value, dict):
            count += 1
            if "pattern" in value and "content" in value:
                growth *= _growth(value["pattern"], value["content"])
        elif isinstance(value, list) and len(value) > PIECES:
            raise Wrong(f"{where} has {len(value):,} entries, expected at most {PIECES:,}")
        elif isinstance(value, int) and not isinstance(value, bool) and section != "post_processor":
            _check_number(value, where)
        elif where.endswith(".Regex") and isinstance(value, str):
            check_regex(value, where)
        elif not where.endswith(".precompiled_charsmap"):
            _check_text(value, where)
    if count > STEPS and section != "post_processor":
        raise Wrong(f"{section} has more than {STEPS} steps")
    if growth > GROWTH:
        raise Wrong(
            f"{section}: its Replace steps can make a text {growth:.0e} times as long, at most {GROWTH:,} is allowed"
        )


def _walk(value: object, where: str, depth: int = 0) -> Iterator[tuple[str, int, object]]:
    """Yield the path, depth and value of all nested values; the JSON parser has bounded the depth."""
    yield where, depth, value
    if depth > 2 * DEPTH:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _walk(inner, f"{where}.{str(key)[:40]}", depth + 1)


def _growth(pattern: object, content: object) -> float:
    if not isinstance(content, str) or not isinstance(pattern, dict):
        return 1.0
    text = pattern.get("String")
    if isinstance(text, str):
        return max(1.0, len(content) / len(text)) if text else 1.0 + len(content)
    return float(max(1, len(content)))


def _check_number(value: object, where: str, least: int = 0, most: int = LONGEST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Wrong(f"{where} is {_short(value)}, expected a whole number from {least} to {most:,}")


def _check_text(value: object, where: str) -> None:
    if isinstance(value, str) and len(value) > TEXT:
        raise Wrong(f"{where} has {len(value):,} characters, expected at most {TEXT:,}")


def _short(value: object) -> str:
    return repr(value)[:40]


class _Group:
    """A regex group during parsing: the parts of the current alternative, and the maximum repetition inside it."""

    def __init__(self, *, atomic: bool = False) -> None:
        self.atomic = atomic
        self.parts = 0
        self.loops = False  # the last part repeats without bound, and the engine may backtrack into it
        self.alone = False  # an alternative is a single such part: repeated again, it can split a text in many ways
        self.times = 1

    def end_alternative(self) -> None:
        self.alone = self.alone or (self.parts == 1 and self.loops)
        self.parts, self.loops = 0, False

    def add(self, loops: bool, times: int) -> None:
        self.parts, self.loops = self.parts + 1, loops
        self.times = max(self.times, times)


def check_regex(regex: str, where: str) -> None:
    """Raise Wrong for a regex that is too long, repeats a part too often, or nests quantifiers as in `(a+)+`."""
    if len(regex) > REGEX:
        raise Wrong(f"{where} has {len(regex):,} characters, expected at most {REGEX:,}")
    plain, nested = ESCAPE.sub(_blank, regex), 1
    while nested:
        plain, nested = CLASS.subn(_blank, plain)
    groups, position = [_Group()], 0
    while position < len(plain):
        letter = plain[position]
        if letter == BLANK:
            position += 1
        elif letter == "(":
            start = _opening(plain, position)
            if start is None:  # flags such as (?i) match nothing
                position = plain.find(")", position) + 1 or len(plain)
                continue
            groups.append(_Group(atomic=plain.startswith("(?>", position)))
            position = start
        elif letter == "|":
            groups[-1].end_alternative()
            position += 1
        elif letter == ")":
            group = groups.pop() if len(groups) > 1 else groups[0]
            group.end_alternative()
            alone = group.alone and not group.atomic
            loops, times, position = _quantifier(plain, position + 1)
            if alone and loops:
                raise Wrong(
                    f"{where} repeats what already repeats, as (a+)+ does: {regex[max(0, position - 40) : position]!r}"
                )
            times *= group.times
            if times > REPETITIONS:
                raise Wrong(f"{where} repeats a part {times:,} times, expected at most {REPETITIONS:,}")
            groups[-1].add(loops or alone, times)
        else:
            loops, times, position = _quantifier(plain, position + 1)
            if times > REPETITIONS:
                raise Wrong(f"{where} repeats a part {times:,} times, expected at most {REPETITIONS:,}")
            groups[-1].add(loops, times)


def _opening(regex: str, position: int) -> int | None:
    """The index where the content of a group begins; None for flags and comments, which have no content."""
    if not regex.startswith("(?", position):
        return position + 1
    for mark in ("(?<=", "(?<!", "(?:", "(?=", "(?!", "(?>"):
        if regex.startswith(mark, position):
            return position + len(mark)
    if regex.startswith("(?<", position):
        return regex.find(">", position) + 1 or len(regex)
    end = position + 2
    while end < len(regex) and (regex[end].isalpha() or regex[end] == "-"):
        end += 1
    return end + 1 if regex[end : end + 1] == ":" else None


def _blank(atom: re.Match[str]) -> str:
    """One letter at the end of an escape or a class, for which quantifiers are looked for, and blanks before it."""
    return BLANK * (len(atom[0]) - 1) + "x"


def _quantifier(regex: str, position: int) -> tuple[bool, int, int]:
    """Whether the previous part repeats without bound and can backtrack, its repetition count, and the next index."""
    mark, loops, times = regex[position : position + 1], False, 1
    if mark in ("*", "+", "?") and mark:
        loops, position = mark != "?", position + 1
    elif mark == "{" and (end := regex.find("}", position)) > 0:
        low, comma, high = regex[position + 1 : end].partition(",")
        if not all(part == "" or (part.isascii() and part.isdigit()) for part in (low, high)) or not (low or high):
            return False, 1, position
        times = max(int(part[:9]) if len(part) < 10 else REPETITIONS + 1 for part in (low or "0", high or "0"))
        loops, position = bool(comma) and not high, end + 1
    else:
        return False, 1, position
    if regex[position : position + 1] == "+":  # possessive: no backtracking
        return False, max(times, 1), position + 1
    return loops, max(times, 1), position + (regex[position : position + 1] == "?")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject duplicate keys: the library could use another of the values. Vocabularies (token -> id) are exempt."""
    result = dict(pairs)
    if len(result) < len(pairs) and not all(isinstance(value, int | float) for value in result.values()):
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise Wrong(f"the key {key[:40]!r} appears twice in one object")
            keys.add(key)
    return result


def _limit(memory: int, seconds: int) -> None:
    try:
        import resource
    except ImportError:  # then the timeout of the parent process is the only limit
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (max(1, seconds), max(1, seconds) + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _patterns(document: object) -> str:
    """The characters of all patterns, to test steps that act only on rare characters."""
    patterns = [
        value
        for section in STEPS_OF
        for where, _, value in _walk(document.get(section) if isinstance(document, dict) else None, section)
        if isinstance(value, str) and where.endswith((".Regex", ".String"))
    ]
    return "".join(dict.fromkeys("".join(patterns)))[:2000]


def _use(library: Any, text: str, probes: list[str]) -> None:
    pipeline = library.Tokenizer.from_str(text)
    pipeline.no_padding()
    pipeline.no_truncation()
    for probe in probes:
        pipeline.decode(pipeline.encode(probe).ids[:1000])
    pipeline.encode("", "")


def _main(limits: dict[str, Any]) -> str:
    _limit(limits["memory"], limits["seconds"])
    sys.path[:0] = limits["path"]
    text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    try:
        document = json.loads(text, object_pairs_hook=_unique)
        check_document(document)
        probes = [*PROBES, _patterns(document) * 3]
        del document
    except Wrong as error:
        return str(error)
    except RecursionError:
        return "its brackets are nested too deeply"
    except MemoryError:
        raise
    except ValueError:
        return ""  # not JSON: the library reports where
    import tokenizers

    try:
        _use(tokenizers, text, probes)
    except MemoryError:
        raise
    except BaseException as error:
        # Whatever the library raises here, panics included, it raises in the parent process too.
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise
    return ""


if __name__ == "__main__":
    print(json.dumps({"wrong": _main(json.loads(sys.argv[1]))}))
