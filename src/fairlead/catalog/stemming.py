"""What the inflections of an English word have in common, by the rules of Snowball's English stemmer.

Written out here because indexing 10,000 tools is mostly this: the package for all languages takes six times
as long per word, and longer to import than a command may take. Most of its exceptions are left out: a stem
need not be a word, only the same for a word's forms.
"""

import re

# A region after the first consonant that follows a vowel; the second such region begins within the first.
_REGION = re.compile("[^aeiouy]*[aeiouy]+[^aeiouy]")
_VOWEL = re.compile("[aeiouy]")
_SHORT_END = re.compile("(?:^|.*[^aeiouy])[aeiouy][^aeiouywxY]$|^[aeiouy][^aeiouy]$")
_CONSONANT_Y = re.compile("^y|(?<=[aeiouy])y")
# These would otherwise lose what tells them from one another: general, generous; communism, community.
_WHOLE_PREFIXES = re.compile("gener|commun|arsen|univers|organ|inter|past|later|emerg")

_DOUBLES = frozenset({"bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"})
_BEFORE_LI = frozenset("cdeghkmnrt")

_DERIVED = {
    "ational": "ate", "ation": "ate", "ator": "ate", "tional": "tion", "enci": "ence", "anci": "ance",
    "abli": "able", "entli": "ent", "izer": "ize", "ization": "ize", "alism": "al", "aliti": "al",
    "alli": "al", "fulness": "ful", "fulli": "ful", "ousli": "ous", "ousness": "ous", "iveness": "ive",
    "iviti": "ive", "biliti": "ble", "bli": "ble", "lessli": "less", "ogi": "og", "ogist": "og",
}  # fmt: skip
_DERIVED_AGAIN = {
    "ational": "ate", "tional": "tion", "alize": "al", "icate": "ic", "iciti": "ic", "ical": "ic",
    "ful": "", "ness": "", "ative": "",
}  # fmt: skip
_ENDINGS = frozenset({
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ism", "ate", "iti",
    "ous", "ive", "ize", "sion", "tion",
})  # fmt: skip

_EXCEPTIONS = {
    "bias": "bias", "early": "early", "evening": "evening", "evenings": "evening", "news": "news",
    "skies": "sky",
}  # fmt: skip


def stem(word: str) -> str:
    """The stem of a word in lower-case letters a to z. Anything else stays as it is."""
    if word in _EXCEPTIONS:
        return _EXCEPTIONS[word]
    if len(word) < 3 or not (word.isascii() and word.isalpha()):
        return word
    if "y" in word:
        word = _CONSONANT_Y.sub("Y", word)
    first, second = _regions(word)
    word = _without_plural(word)
    word = _without_tense(word, first)
    if word[-1] in "yY" and len(word) > 2 and word[-2] not in "aeiouy":
        word = word[:-1] + "i"
    word = _without_derivation(word, first)
    word = _without_second_derivation(word, first, second)
    word = _without_ending(word, second)
    return _without_final_letter(word, first, second).lower()


def _regions(word: str) -> tuple[int, int]:
    begun = _WHOLE_PREFIXES.match(word) or _REGION.match(word)
    first = begun.end() if begun else len(word)
    begun = _REGION.match(word, first)
    return first, begun.end() if begun else len(word)


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _VOWEL.search(word, 0, len(word) - 2):
        return word[:-1]
    return word


def _without_tense(word: str, first: int) -> str:
    for ending in ("eedly", "eed"):
        if word.endswith(ending):
            start = len(word) - len(ending)
            return word[: start + 2] if start >= first else word
    for ending in ("ingly", "edly", "ing", "ed"):
        if word.endswith(ending):
            rest = word.removesuffix(ending)
            return _restored(rest, first) if _VOWEL.search(rest) else word
    return word


def _restored(word: str, first: int) -> str:
    """Give back the `e`, or take the doubled consonant, that the ending cost: `hoping`, `hopping`."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word[-2:] in _DOUBLES:
        return word[:-1] if len(word) > 3 or word[0] not in "aeo" else word
    return word + "e" if first >= len(word) and _SHORT_END.match(word) else word


def _without_derivation(word: str, first: int) -> str:
    for size in range(min(7, len(word) - first), 2, -1):
        replacement = _DERIVED.get(word[-size:])
        if replacement is not None:
            return word[:-size] + replacement
    if word.endswith("li") and len(word) - 2 >= first and word[-3] in _BEFORE_LI:
        return word[:-2]
    return word


def _without_second_derivation(word: str, first: int, second: int) -> str:
    for size in range(min(7, len(word) - first), 2, -1):
        replacement = _DERIVED_AGAIN.get(word[-size:])
        if replacement is not None:
            kept = word.endswith("ative") and len(word) - size < second
            return word if kept else word[:-size] + replacement
    return word


def _without_ending(word: str, second: int) -> str:
    for size in range(5, 1, -1):
        ending = word[-size:]
        if ending in _ENDINGS:
            taken = 3 if ending.endswith("ion") else size
            return word[:-taken] if len(word) - taken >= second else word
    return word


def _without_final_letter(word: str, first: int, second: int) -> str:
    start = len(word) - 1
    if word.endswith("e"):
        silent = start >= second or (start >= first and not _SHORT_END.match(word[:-1]))
        return word[:-1] if silent else word
    return word[:-1] if word.endswith("ll") and start >= second else word
