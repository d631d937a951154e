"""Splits paragraphs into sentences by rules: English ones, or those of any language.

Increase `RULES` when a rule for English changes: the same version must give the same sentences. In doubt the rules do
not split, because long sentences do less harm in pretraining than halves of sentences.
"""

# ruff: noqa: RUF001 (the rules contain quotation marks and dashes)

from __future__ import annotations

import re

RULES = 1

_CLOSE = r"\"'”’»)\]}_*"
_OPEN = r"\"'“‘«(\[{_*¿¡"


# Terminal punctuation (also ". . ."), closing quotes and brackets, footnote marks, and whitespace, not followed by a
# letter or mark that continues the sentence (`_ends` checks for non-ASCII lowercase letters). The lookbehinds prevent
# a search from every dot in a long run of dots.
def _stop(marks: str, close: str) -> str:
    return (
        rf"[{marks}](?<![{marks}]{{2}})(?<!\.[ \u00a0]\.)[{marks}]*+(?:[ \u00a0]\.(?![.\w]))*+{close}"
        rf"(?:\[\d{{1,3}}\])*+\s++(?![a-z,;:{marks})\]}}%&=+/]|[{_OPEN}]+[a-z]|[-–—]+\s*[a-z])"
    )


_STOP = re.compile(_stop(".!?…", rf"[{_CLOSE}]*+"))
# Also the marks of other scripts, quotes that close with “ or «, a space before », and marks that no space follows: in
# Chinese and Japanese, and between a word in lower case and one with a capital.
_CLOSE_ANY = rf"(?:[{_CLOSE}“«‹›]|[ \u00a0\u202f][»›](?!\w))*+"
_UNSPACED = r"(?<=[a-zß-öø-ÿа-яё]{2})(?<!www)[.!?…]++(?=[A-ZÀ-ÖØ-ÞА-ЯЁ][a-zß-öø-ÿа-яё])"
_STOP_ANY = re.compile(
    "|".join((_stop(".!?…؟।۔", _CLOSE_ANY), r"[。！？｡]++[」』”’）》】)]*+\s*+(?![とっ、，])", _UNSPACED))
)
_LOWER_START = re.compile(r"[.!?…][.!?…\s]*\s([a-zß-öø-ÿ])")
# A small letter that begins a line after the end of a sentence.
_LOWER_LINE = re.compile(rf"[.!?…؟।۔][{_CLOSE}“«‹›]*+(?:\[\d{{1,3}}\])*+[^\S\n]*+\n\s*+[{_OPEN}„–—-]*+\s*+([^\W\d_])")
_ORDINAL = re.compile(r"\d{1,3}")
_SPACE_BEFORE = re.compile(r"\S+\Z")
_WORD = re.compile(rf"[{_OPEN}]*([^\W_]+(?:['’][^\W_]+)?)")
_LETTERS = re.compile(r"[^\W\d_](?:\.[^\W\d_]{1,2})+|(?:Ph|Lit|Litt|Sc|Ed|Th)\.[A-Z]")
_COUNTER = re.compile(r"[(\[]?(?:\d{1,3}|[A-Za-z]|[IVXLC]{1,7}|\d{1,2}(?:\.\d{1,2})+)[)\]]?")
_ROMAN = re.compile(r"[IVXLC]{2,}\b|[VXLC]\b|I(?=[.,;:)]|\Z)")  # "I" alone is more often the pronoun


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# These never end a sentence.
_TITLES = _words("""
    mr mrs ms messrs mm dr drs prof rev revd hon gen maj lt capt cpl sgt pvt cmdr adm fr mme mlle mgr gov sen rep pres
    supt insp atty ft mt ste pte brig lieut bp abp vs cf viz i.e e.g ie eg
""")
# These do not end a sentence if a number follows, Arabic or Roman.
_NUMBERED = _words("""
    no nos nr vol vols fig figs sec sect art arts ch chap chaps p pp pt pts par para op ed bk app eq eqs ref refs ver
    v vv l ll n nn col cols pl tab lib cap act sc ser bd ca c circa approx fl b d r m est aet jan feb mar apr jun jul
    aug sep sept oct nov dec
""")
# These may or may not end a sentence: the next word decides.
_EITHER = _words("""
    inc ltd co corp bros jr sr esq etc al st ave blvd rd univ dept assn assoc bldg mfg ibid seq ff col nos nr vol vols
    figs sec sect arts ch chap chaps pp pts para ed eds bk app eq eqs ref refs ca approx jan feb apr jun jul aug sep
    sept oct nov dec sq cu hr hrs lb lbs oz yd yds lond trans transl anon
""")
_STATES = _words("""
    Ala Ariz Ark Calif Colo Conn Fla Ga Ill Ind Kan Ky Mass Mich Minn Miss Mo Mont Neb Nev Okla Oreg Penn Tenn Tex Va
    Vt Wash Wis Wyo
""")
# Capitalized words that start sentences and are rarely part of a name. "I" is not one of them: "Charles I. I saw".
_OPENERS = _words("""
    The This That These Those There Then They Their It Its He His She Her We Our You Your My If In On At As An And But
    Or Nor So Yet For From By With Without When Where While Who What Which Why How After Before Since During Under
    Over Upon Until Unless Although Though Because However Moreover Furthermore Therefore Thus Hence Meanwhile
    Nevertheless Instead Indeed Also Another Other Some Many Most Much Several Each Every Both Either Neither All Any
    No Not Only Once Later Soon Now Today Here Among According Despite Following Perhaps Such Two Three Four Five Six
    Is Are Was Were Has Have Had Do Does Did Can Could Will Would Should May Might Must Let One Between Through Within
    Born Having Being To Of It's He's She's That's There's They're We're Can't Don't Didn't
""")
# Of other languages; an ordinal number ("am 3. Mai") and these never end a sentence.
_TITLES_ANY = _words("""
    bzw ca z.b d.h u.a o.ä u.ä s.o s.u i.d.r v.a vgl evtl ggf inkl exkl zzgl sog bspw hr fr frl dipl ing geb gest st str
    abb tel m mm p.ex env av éd sr sra srta dña ud uds pág núm tel sig sigg dott ecc dhr mevr bijv resp
""")
_EITHER_ANY = _words("usw etc mio mrd mill std min jh jhd n.chr v.chr gmbh ag jan feb mär apr aug sept okt nov dez")
_OPENERS_ANY = _OPENERS | _words("""
    Der Die Das Den Dem Ein Eine Einen Er Sie Es Wir Ihr Ich Du Man Und Aber Oder Wenn Dann Da Hier Dort Was Wer Wo Wie
    Warum Mein Meine Dein Deine Sein Seine Unser Unsere Dieser Diese Dieses Im Am Auf Mit Nach Von Für Nicht Kein Keine
    Ist Sind Hat Haben Kann Danach Heute Morgen Gestern Jetzt Alle Le La Les Un Une Des Il Elle On Nous Vous Ils Elles
    Je Tu Et Mais Ou Si Ce Cette Ces C'est Dans En Au Aux À Pour Quand Qui Que Mon Ma Mes Son Sa Ses Notre El Los Las
    Una Ella Ellos Yo Pero Se Su Sus Lo Gli Io Lui Lei Noi Ma Non Het Een Hij Zij Wij Ik
""")
_SAYING = re.compile(
    r"(?:I|[Hh]e|[Ss]he|[Tt]hey|[Ww]e|(?:the|his|her|my) \w+|(?:(?:Mr|Mrs|Miss|Dr|Sir|Lady|Lord|Captain)\.? )?"
    r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)?) (?:said|says|asked|asks|cried|cries|exclaimed|replied|answered|inquired|"
    r"enquired|demanded|shouted|whispered|murmured|muttered|returned|continued|added|ejaculated|interrupted|repeated|"
    r"responded|retorted|screamed|sighed|gasped|called|roared|observed|remarked|faltered|stammered|thought|growled)\b"
)


def split_sentences(paragraph: str, *, any_language: bool = False) -> list[tuple[int, int]]:
    """Return the (start, end) of every sentence, in order, without surrounding whitespace.

    Every other character is in exactly one sentence; a blank paragraph has no sentences. `any_language`: the paragraph
    may be in another language than English, and wholly in lower case; a line break after the mark of an end ends a
    sentence, whatever letter follows.
    """
    end = len(paragraph.rstrip())
    start = len(paragraph) - len(paragraph.lstrip())
    if any_language:  # where a small letter does not say that the sentence continues
        for pattern in (*([_LOWER_START] if paragraph.islower() else []), _LOWER_LINE):
            paragraph = pattern.sub(lambda match: match[0][:-1] + match[1].upper()[:1], paragraph)
    sentences = []
    for match in (_STOP_ANY if any_language else _STOP).finditer(paragraph, start, end):
        at, following = match.span()
        stop = at + len(match[0].rstrip())
        if (
            following < end
            and _ends(paragraph, start, at, following, any_language)
            and not _is_dialogue(paragraph, at, stop, following)
        ):
            sentences.append((start, stop))
            start = following
    if start < end:
        sentences.append((start, end))
    return sentences


def _ends(text: str, start: int, at: int, following: int, any_language: bool) -> bool:
    """Return whether the mark at `at` ends the sentence that starts at `start`; the next word is at `following`."""
    if text[following].islower():
        return False
    if text[at] != "." or text[at + 1] in ".…!?":
        return True
    # The word before the mark; the slice bounds the cost of very long "words".
    before = _SPACE_BEFORE.search(text[max(start, at - 40) : at])
    if before is None:  # a period after a space
        return True
    word = before[0]
    bare = word.lstrip("\"'“‘«([{_*¿¡-–—")
    if len(word) == at - start and _COUNTER.fullmatch(word):
        return False  # "1. The first" is one sentence, and so is "A. The second"
    if "-" in bare or "—" in bare:
        bare = re.split("[-–—]+", bare)[-1]
    small = bare.lower()
    if small in _TITLES or (any_language and small in _TITLES_ANY):
        return False
    if small in _NUMBERED and (text[following].isdecimal() or _ROMAN.match(text, following)):
        return False
    letter = len(bare) == 1 and bare.isalpha() and bare < "\u0250"
    either = letter or small in _EITHER or bare in _STATES or _LETTERS.fullmatch(bare)
    if either or (any_language and (small in _EITHER_ANY or _ORDINAL.fullmatch(bare))):
        following_word = _WORD.match(text, following)
        openers = _OPENERS_ANY if any_language else _OPENERS
        return following_word is not None and following_word[1] in openers
    return True


def _is_dialogue(text: str, at: int, stop: int, following: int) -> bool:
    """Return whether a quotation ends but not the sentence, as in `"Why?" I asked`. A period always ends both."""
    quoted = text[at] in "!?…" and text[stop - 1] in "\"'”’»"
    return quoted and _SAYING.match(text, following) is not None
