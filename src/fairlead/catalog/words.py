"""Text as the terms it is indexed and searched by, and names as what they have in common however written."""

import re
import unicodedata
from functools import lru_cache

from fairlead.catalog.stemming import stem
from fairlead.catalog.thesaurus import FAMILIES

STOP_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        """
        a about above after again against all also am an and any are as at be because been before being
        below between both but by can cannot could did do does doing down during each etc few for from
        further had has have having he her here hers herself him himself his how i if in into is it its
        itself just may me might more most must my myself no nor not now of off on once only or other ought
        our ours ourselves out over own per same shall she should so some such than that the their theirs
        them themselves then there these they this those through to too under until up upon us very via was
        we were what when where which while who whom whose why will with within would you your yours
        yourself yourselves
        d didn doesn don isn ll m re s t ve
        hello help hey hi know let like need please tell thank thanks want wish
        """,
    )
)
"""Words that say nothing about which tool is meant: grammar, what apostrophes leave, and courtesies."""

# What is longer than a word can be is cut up, so that it cannot fill the memory of words seen.
_RUN = re.compile(r"[^\W_]{1,64}")
# In turn: plural acronyms (URLs), acronyms (HTTP of HTTPServer), words, numbers.
_PIECE = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# Scripts written without spaces: Thai to Khmer, kana, ideographs, Hangul (whose particles stick to words).
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    r"\U00020000-\U0003134f"
)
_SCRIPT = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


def terms(text: str) -> list[str]:
    """The terms of a text in order, repeated where the text repeats itself.

    `GitHub` is found as `github`, `git` and `hub`; `listPullRequests` as its three words; `北京天气` as its
    three pairs of characters; inflections and the spellings in `FAMILIES` as one.
    """
    found: list[str] = []
    for run in _RUN.findall(_plain(text)):
        found += _terms_of_run(run)
    return found


def pieces(name: str) -> list[str]:
    """The words a name is made of, unstemmed: `mcp__fs__readFile` gives mcp, fs, read, file."""
    found: list[str] = []
    for run in _RUN.findall(_plain(name)):
        found += [piece.lower() for piece in _PIECE.findall(run)] if run.isascii() else [run.casefold()]
    return found


def squash(name: str) -> str:
    """What `find_symbol`, `findSymbol`, `Find-Symbol` and `find symbol` have in common: `findsymbol`."""
    return "".join(_RUN.findall(_plain(name))).casefold()


def _plain(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


@lru_cache(maxsize=32_768)
def term(word: str) -> str:
    """The term of one lower-case word: the stem of its family's head."""
    return stem(FAMILIES.get(word, word))


# Catalogs repeat themselves: 10,000 tools hold 300,000 runs, and a tenth of that in different ones.
@lru_cache(maxsize=32_768)
def _terms_of_run(run: str) -> tuple[str, ...]:
    if not run.isascii():
        return _terms_of_foreign_run(run)
    parts = [part.lower() for part in _PIECE.findall(run)]
    if len(parts) == 1:
        return () if parts[0] in STOP_WORDS else (term(parts[0]),)
    found = [term(part) for part in parts if part not in STOP_WORDS and (len(part) > 1 or part.isdigit())]
    # Brands are written as one word too (GitHub, MongoDB), and a number is often part of one (ec2, sha256).
    if len(parts) == 2 or not run.isalpha():
        found.append(term(run.lower()))
    return tuple(found)


def _terms_of_foreign_run(run: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in _SCRIPT.findall(run.casefold()):
        if not _IS_UNSPACED.match(part):
            bare = _without_accents(part)
            found += _terms_of_run(bare) if bare.isascii() else (bare,)
        elif len(part) == 1:
            found.append(part)
        else:
            found += [part[start : start + 2] for start in range(len(part) - 1)]
    return tuple(found)


def _without_accents(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))
