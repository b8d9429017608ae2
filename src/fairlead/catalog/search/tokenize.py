"""Tokenizing of text into search terms: words, stems, and names in any spelling.

Words are stemmed by Snowball's rules: those in Latin letters as English, without their accents, and those of
other scripts as the language that most of its texts are in. Scripts without spaces become pairs of
characters.
"""

import re
import threading
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from fairlead.catalog.search.thesaurus import FAMILIES

_thread = threading.local()
"""Has a stemmer for each thread: one must not be used by two at once."""


def stem(word: str) -> str:
    """Stem of a word in lower-case letters a to z. Anything else stays unchanged."""
    if len(word) < 3 or not (word.isascii() and word.isalpha()):
        return word
    return _stem(word, "english")


def _stem(word: str, language: str) -> str:
    stemmer: Callable[[str], str] | None = getattr(_thread, language, None)
    if stemmer is None:
        import Stemmer  # not before something is searched

        stemmer = Stemmer.Stemmer(language, 0).stemWord  # nothing cached there: `term` does that
        setattr(_thread, language, stemmer)
    return stemmer(word)


STOP_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        """
        a about above after again against all also am an and any are as at be because been before being
        below between both but by can cannot could did do does doing down during each etc few for from
        further had has have having he her here hers herself him himself his how i if in into is it its
        itself just may me might more most must my myself no nor not of off on once only or other ought
        our ours ourselves out over own per same shall she should so some such than that the their theirs
        them themselves then there these they this those through to too under until up upon us very via was
        we were what when where which while who whom whose why will with within would you your yours
        yourself yourselves
        d didn doesn don isn ll m re s t ve
        hello help hey hi know let like need please tell thank thanks want wish
        """,
    )
)
"""Stop words: grammar, remains of apostrophes, and courtesies."""

# Longer runs than a word are split, so that they cannot fill the cache.
_RUN = re.compile(r"[^\W_]{1,64}")
# In turn: plural acronyms (URLs), acronyms (HTTP of HTTPServer), words, numbers.
_PIECE = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_PLURAL_ACRONYM = re.compile("[A-Z]{2,}s")
_WITHOUT_VOWEL = re.compile("[b-df-hj-np-tv-xz]*[b-df-hj-np-rtv-xz]")

# Scripts written without spaces: Thai to Khmer, kana, ideographs, Hangul (whose particles stick to words).
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    r"\U00020000-\U0003134f"
)
_SCRIPT = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IDEOGRAPH = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f]")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_LANGUAGES = (
    (re.compile(r"[\u0400-\u052f]+"), "russian"),
    (re.compile(r"[\u0620-\u06d3]+"), "arabic"),
    (re.compile(r"[\u0900-\u097f]+"), "hindi"),
    (re.compile(r"[\u0370-\u03ff]+"), "greek"),
)
"""Scripts, and the language whose stemmer reads their words."""
_INDIC = re.compile(r"[\u0900-\u0dff]")
_HEBREW = re.compile(r"[\u05d0-\u05ea]+")
_HEBREW_PREFIX = re.compile("[\u05d5\u05d4\u05d1\u05dc\u05de\u05e9\u05db](?=...)")
"""One letter of "and", "the", "in", "to", "from", "that" or "as", which are written with the word."""
_HEBREW_ENDING = re.compile("(?<=...)(?:\u05d9\u05dd|\u05d5\u05ea|\u05d9\u05d4|[\u05d4\u05ea\u05d9])$")
_MOST_HEBREW_PREFIXES = 2
# Signs within words that are no letters to `re`: vowels and tones of Indic scripts and of Thai to Khmer, and
# accents that no letter is composed with.
_SIGNS = (
    r"\u0300-\u036f\u0900-\u0963\u0971-\u0dff\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    r"\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1060\u17b4-\u17d3"
)
_FOREIGN_RUN = re.compile(rf"\w[\w{_SIGNS}]{{0,63}}")
# Signs that may as well be left out: points of Hebrew, vowel signs of Arabic and the stroke that only
# stretches a word, hyphens and joiners that are not seen. Most texts have none of them.
_OPTIONAL_SIGNS = re.compile(
    r"[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670\u00ad\u200d\u2060]"
)
# Letters that have no accent to lose but are typed without it, and Persian ones that look as Arabic ones do.
_PLAIN_LETTERS = str.maketrans(
    {
        "\u0131": "i",
        "\u0111": "d",
        "\u00f0": "d",
        "\u00f8": "o",
        "\u0142": "l",
        "\u00e6": "ae",
        "\u0153": "oe",
        "\u06cc": "\u064a",
        "\u06a9": "\u0643",
    }
)


def terms(text: str) -> list[str]:
    """Terms of a text in order, repeated where the text repeats itself.

    `GitHub` is found as `github`, `git` and `hub`; `listPullRequests` as its three words; `北京天气` as its
    three pairs of characters; inflections and the spellings in `FAMILIES` as one.
    """
    found: list[str] = []
    for run in _runs(text):
        found += _terms_of_run(run)
    return found


def pieces(name: str) -> list[str]:
    """Words of a name, unstemmed: `mcp__fs__readFile` gives mcp, fs, read, file."""
    found: list[str] = []
    for run in _runs(name):
        found += [piece.lower() for piece in _PIECE.findall(run)] if run.isascii() else [run.casefold()]
    return found


def squash(name: str) -> str:
    """Common form of `find_symbol`, `findSymbol`, `Find-Symbol` and `find symbol`: `findsymbol`."""
    return "".join(_runs(name)).casefold()


def _runs(text: str) -> list[str]:
    if text.isascii():
        return _RUN.findall(text)
    plain = _OPTIONAL_SIGNS.sub("", unicodedata.normalize("NFKC", text))
    return _FOREIGN_RUN.findall(plain.replace("_", " "))


@lru_cache(maxsize=32_768)
def term(word: str) -> str:
    """Term of one lower-case word: the stem of its family's head."""
    head = FAMILIES.get(word)
    if head is None and word.endswith("s") and len(word) > 3:
        one = word[:-1]
        # Snowball takes no plural of what has no vowel: pdfs, csvs.
        head = FAMILIES.get(one) or (one if _WITHOUT_VOWEL.fullmatch(one) else None)
    return stem(head or word)


# Catalogs repeat themselves: 10,000 tools hold 300,000 runs, of which a tenth are different.
@lru_cache(maxsize=32_768)
def _terms_of_run(run: str) -> tuple[str, ...]:
    if not run.isascii():
        return _terms_of_foreign_run(run)
    parts = [_singular(part).lower() for part in _PIECE.findall(run)]
    if len(parts) == 1:
        return () if parts[0] in STOP_WORDS else (term(parts[0]),)
    found = [term(part) for part in parts if part not in STOP_WORDS and (len(part) > 1 or part.isdigit())]
    # Brands are written as one word too (GitHub, MongoDB), and a number is often part of one (ec2, sha256).
    if len(parts) == 2 or not run.isalpha():
        found.append(term(run.lower()))
    return tuple(found)


def _singular(piece: str) -> str:
    """A plural acronym as one of them: `PRs` are each a `PR`."""
    return piece[:-1] if _PLURAL_ACRONYM.fullmatch(piece) else piece


def _terms_of_foreign_run(run: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in _SCRIPT.findall(run):
        if not _IS_UNSPACED.match(part):
            pieces_of_part = _split_case(part)
            for piece in pieces_of_part:
                found += _terms_of_spaced_run(piece.casefold())
            if len(pieces_of_part) == 2:  # two words in one are written as one word, too, as in ASCII
                found += _terms_of_spaced_run(part.casefold())
        elif len(part) == 1:
            found.append(part)
        else:
            found += [part[start : start + 2] for start in range(len(part) - 1)]
    return tuple(found)


def is_ideograph(text: str) -> bool:
    """Whether a text is one ideograph: a word by itself, as a syllable of Hangul or kana seldom is."""
    return _IDEOGRAPH.fullmatch(text) is not None


def _split_case(word: str) -> list[str]:
    """The words of camelCase in letters that `_PIECE` does not know: accented, Cyrillic, Greek."""
    starts = [0, *(at for at in range(1, len(word)) if word[at].isupper() and word[at - 1].islower())]
    return [word[start:end] for start, end in zip(starts, [*starts[1:], len(word)], strict=True)]


def _terms_of_spaced_run(word: str) -> tuple[str, ...]:
    language = _language(word)
    if language == "russian":
        return (_stem(word.replace("\u0451", "\u0435"), language),)  # yo is mostly written as ie
    if _INDIC.match(word):  # its signs are no accents
        return (_stem(word, language) if language else word,)
    bare = _without_accents(word).translate(_PLAIN_LETTERS)
    if bare.isascii():
        return _terms_of_run(bare) if bare else ()
    if _HEBREW.fullmatch(bare):
        return _terms_of_hebrew(bare)
    language = _language(bare)
    return (_stem(bare, language) if language else bare,)


def _language(word: str) -> str | None:
    return next((language for script, language in _LANGUAGES if script.fullmatch(word)), None)


def _terms_of_hebrew(word: str) -> tuple[str, ...]:
    """The word, and what it is behind letters that may be words of their own."""
    forms = [word]
    while len(forms) <= _MOST_HEBREW_PREFIXES and _HEBREW_PREFIX.match(forms[-1]):
        forms.append(forms[-1][1:])
    return tuple(dict.fromkeys(_HEBREW_ENDING.sub("", form) for form in forms))


def _without_accents(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))
