"""Tokenizing of text into search terms: words, stems, synonyms, and names in any spelling.

Words are stemmed by Snowball's rules: those in Latin letters as English, without their accents, and Cyrillic
and Arabic ones as Russian and Arabic. Scripts without spaces become pairs of characters. Synonyms are general
English and the trade's abbreviations; words that no tool has do no harm.
"""

import re
import threading
import unicodedata
from collections.abc import Callable
from functools import lru_cache

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


_FAMILIES = """
    account: acct accts
    address: addr
    administrator: admin
    advertisement: ad ads
    analyze: analyse analyses analysis analytic analytical analytics
    apply: application
    argument: arg args
    authenticate: auth authentication authorization authorize
    average: avg
    calculate: calc
    classify: classification classifier
    compare: comparison
    compress: compression
    config: cfg configuration configure
    convert: conversion converter
    current: currently now
    database: databases db dbs
    decide: decision
    delete: del deletion
    dependency: dep deps
    derive: derivative
    describe: description
    development: dev
    directory: dir dirs directories folder folders
    divide: division
    document: doc docs docx
    environment: env
    execute: exec execution
    expand: expansion
    extend: extension
    finance: financial
    identifier: id ids
    identify: identification
    image: img imgs
    information: info
    javascript: js
    kubernetes: k8s
    mathematics: math maths
    maximum: max
    message: msg msgs
    minimum: min
    minute: mins
    modify: modification
    multiply: multiplication
    notify: notification notifications
    number: num nums
    optimize: optimization optimise
    organization: org organisation orgs
    organize: organise
    parameter: param params
    password: passwd pwd
    permit: permission permissions
    photo: photograph photography pic pics
    prescribe: prescription
    presentation: powerpoint ppt pptx presentations
    process: proc procs
    production: prod
    quantity: qty
    reference: ref refs
    repository: repo repos
    specification: spec specs
    spreadsheet: xls xlsx
    statistics: statistic statistical stats
    submit: submission
    subscribe: subscriber subscription subscriptions
    summarize: summaries summarise summary
    telephone: phone
    television: tv
    temperature: temp
    transcribe: transcript transcription
    translate: translation translator
    transaction: tx txn
    transmit: transmission
    typescript: ts
    verify: verification
    version: ver
    visualize: visualise visualization
"""

FAMILIES = {
    member: head.strip()
    for head, _, members in (line.partition(":") for line in _FAMILIES.strip().splitlines())
    for member in members.split()
}
"""Forms of one word that a stemmer does not join: each becomes the head of its family."""

RELATED = tuple(
    tuple(line.split())
    for line in """
        create add make new insert generate
        delete remove erase drop clear
        update edit modify change set
        get retrieve fetch read obtain
        find search lookup query locate discover
        list show display view enumerate
        send post deliver dispatch
        calculate compute determine evaluate
        run execute launch start invoke
        stop cancel abort terminate kill
        download save export
        save write store
        upload import load
        schedule plan book reserve
        buy purchase order shop
        check verify validate confirm
        compare versus difference
        convert transform translate
        estimate predict forecast
        recommend suggest advise
        deploy release publish
        monitor watch track
        crawl scrape extract
        login sign authenticate
        summarize abstract digest
        memory remember recall
        price cost quote fee rate
        message chat sms text
        email mail inbox
        meeting event appointment calendar
        task todo issue ticket
        user account member profile
        person people contact
        customer client
        company business organization firm
        employee staff worker
        image picture photo
        image generate draw
        video movie film cinema
        video youtube
        music song audio track
        speech voice audio
        file document
        repository project codebase
        code source program script
        bug issue error defect
        commit change revision
        pull merge
        database table sql
        spreadsheet sheet excel
        presentation slide deck
        bitcoin btc
        ethereum eth
        dollar usd
        row record entry
        column field
        web website site internet online
        page url link
        browser chrome
        news article headline
        blog post article
        weather forecast temperature climate rain
        map location place address geocode
        location city region area
        route direction navigation
        distance far
        flight airline airport plane
        hotel accommodation lodging room
        trip travel vacation tour journey
        restaurant dining eat
        food meal dish recipe
        car vehicle automobile
        stock share equity ticker
        crypto cryptocurrency bitcoin ethereum blockchain token
        currency exchange money
        payment pay transaction charge
        invoice bill receipt
        loan mortgage credit
        invest portfolio fund
        tax vat
        bank finance
        job career employment position
        resume cv
        course class lesson learn training
        study learn education
        student pupil
        doctor physician medical
        health medical clinical
        disease illness condition
        drug medicine medication
        law legal
        house home property apartment
        rent lease
        game play
        sport match team
        book read novel
        quote saying
        word dictionary definition
        language translate
        mathematics equation calculate
        chart graph plot diagram
        statistics metric
        log trace
        server host machine
        container docker
        cluster kubernetes
        alert notification
        permission access role
        password credential secret
        key token
        time clock timezone
        date day
        note memo
        product item goods
        discount coupon deal
        gift present
        review rating feedback
        tweet twitter
        design draw
        random dice
    """.strip().splitlines()
)
"""Synonyms among tools. A search tries them too, with less weight."""


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
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_CYRILLIC = re.compile(r"[\u0400-\u052f]+")
_ARABIC = re.compile(r"[\u0620-\u06d3]+")
# Vowel signs and the stroke that only stretches a word: most texts have none of them.
_ARABIC_SIGNS = re.compile(r"[\u0640\u064b-\u065f\u0670]")


def terms(text: str) -> list[str]:
    """Terms of a text in order, repeated where the text repeats itself.

    `GitHub` is found as `github`, `git` and `hub`; `listPullRequests` as its three words; `北京天气` as its
    three pairs of characters; inflections and the spellings in `FAMILIES` as one.
    """
    found: list[str] = []
    for run in _RUN.findall(_plain(text)):
        found += _terms_of_run(run)
    return found


def pieces(name: str) -> list[str]:
    """Words of a name, unstemmed: `mcp__fs__readFile` gives mcp, fs, read, file."""
    found: list[str] = []
    for run in _RUN.findall(_plain(name)):
        found += [piece.lower() for piece in _PIECE.findall(run)] if run.isascii() else [run.casefold()]
    return found


def squash(name: str) -> str:
    """Common form of `find_symbol`, `findSymbol`, `Find-Symbol` and `find symbol`: `findsymbol`."""
    return "".join(_RUN.findall(_plain(name))).casefold()


def _plain(text: str) -> str:
    return text if text.isascii() else _ARABIC_SIGNS.sub("", unicodedata.normalize("NFKC", text))


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
    for part in _SCRIPT.findall(run.casefold()):
        if not _IS_UNSPACED.match(part):
            found += _terms_of_spaced_run(part)
        elif len(part) == 1:
            found.append(part)
        else:
            found += [part[start : start + 2] for start in range(len(part) - 1)]
    return tuple(found)


def _terms_of_spaced_run(word: str) -> tuple[str, ...]:
    if _CYRILLIC.fullmatch(word):
        return (_stem(word.replace("\u0451", "\u0435"), "russian"),)  # yo is mostly written as ie
    bare = _without_accents(word)
    if bare.isascii():
        return _terms_of_run(bare)
    return (_stem(bare, "arabic"),) if _ARABIC.fullmatch(bare) else (bare,)


def _without_accents(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))
