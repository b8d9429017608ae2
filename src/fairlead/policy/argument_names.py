"""Names and flags of arguments, in every spelling and convention that a server may read them in."""

import re
import unicodedata
from typing import Final

from fairlead.catalog.sanitize.text import clean
from fairlead.catalog.schema.keywords import FLAG_WORDS

_INDEX = re.compile(r"\[\d*+\]")
_STEP = re.compile(r"""[\[\]/.$"']++""")


def plain_key(key: str) -> str:
    """Normalize a name as form and query parsers do: `a[b]`, `/a/b`, `$.a.b` and `a.b[]` are `a.b`."""
    plain = clean(unicodedata.normalize("NFKC", key)).strip().casefold()
    return _STEP.sub(".", _INDEX.sub("", plain)).strip(".") or plain


def bare_key(key: str) -> str:
    """The same without what conventions differ in: `--file-path`, `filePath` and `file_path:` are one."""
    plain = plain_key(key)
    return _BETWEEN.sub("", plain) or plain


_BETWEEN = re.compile(r"[^\w.]|_")
LAST_INDEX = re.compile(r"(?:\.\d{1,9})+\Z")
INDEX_KEY = re.compile(r"\d{1,9}")
_WORD_IN_NAME = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\s_-]+")


def written_name(name: str) -> str:
    """Pattern for a name in a text, by any convention for its words."""
    return r"[\s_-]?".join(
        re.escape(plain_key(word)) for word in _WORD_IN_NAME.split(name) if word
    ) or re.escape(name)


def flag_of(text: str) -> bool | None:
    """The boolean that a text is taken for; None where it is none."""
    return FLAG_WORDS.get(text.strip().casefold()) if len(text) < _LONGEST_FLAG else None


_LONGEST_FLAG: Final = 16
