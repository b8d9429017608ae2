"""Find every value that a server could take for an argument that a rule names, decoys next to it included."""

import contextlib
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from fairlead.catalog.sanitize.slices import decode_finite
from fairlead.catalog.sanitize.text import clean
from fairlead.catalog.schema.keywords import FLAG_WORDS
from fairlead.config.untyped import is_list, is_object
from fairlead.policy.path_spellings import MAX_PATH_LENGTH, spellings_of

MAX_VALUES: Final = 2_000
"""Most values of one argument that are read."""
MAX_DEPTH: Final = 32
"""Most objects and lists inside each other that are looked into."""


def values_of(arguments: Mapping[str, object], name: str) -> list[object]:
    """Every value that a server could take for the argument, including decoys next to it.

    A name with dots may be a key with dots, a path into objects, or a mixture; lists on the way are entered,
    and so is JSON inside a text. Keys are compared as lenient JSON parsers do, without case.
    """
    found: list[object] = []
    _find_values(dict(arguments), name.split("."), found, MAX_DEPTH)
    values = [value for value in found if not isinstance(value, _OtherForm)]
    forms = [form for form in found if isinstance(form, _OtherForm)]
    return [*values, UNREAD] if _may_be_given(forms) else values


UNREAD: Final = object()
"""Marks values beyond the limit."""


def _find_values(value: object, steps: list[str], found: list[object], depth: int) -> None:
    if len(found) > MAX_VALUES or depth == 0:
        found.append(UNREAD)
        return
    if not steps:
        found.append(value)
        return
    if isinstance(value, str):
        text, value = value, _parse_nested_json(value)
        if not is_list(value) and not is_object(value):
            found.append(UNREAD if value is UNREAD else _OtherForm(text, steps[0]))
    if is_list(value):
        for index, item in enumerate(value[: MAX_VALUES + 1]):
            _find_values(item, steps, found, depth - 1)
            if steps[0] == str(index):
                _find_values(item, steps[1:], found, depth - 1)
    elif is_object(value):
        _find_members(value, steps, found, depth)


def _find_members(value: dict[str, object], steps: list[str], found: list[object], depth: int) -> None:
    if len(value) > MAX_VALUES:
        found.append(UNREAD)
    wanted = {bare_key(".".join(steps[:taken])): taken for taken in range(1, len(steps) + 1)}
    is_pair = depth < MAX_DEPTH
    for key, item in islice(value.items(), MAX_VALUES):
        if key in _INHERITED or INDEX_KEY.fullmatch(key):  # an object may stand for a list
            _find_values(item, steps, found, depth - 1)
        names = [bare_key(spelling) for spelling in spellings_of(key)]
        names += [LAST_INDEX.sub("", name) for name in names]
        for taken in {wanted[name] for name in names if name in wanted}:
            is_pair = False
            _find_values(item, steps[taken:], found, depth - 1)
    if is_pair and any(isinstance(item, str) and bare_key(item) in wanted for item in value.values()):
        found.append(UNREAD)  # {"name": "path", "value": "/etc"}


@dataclass(frozen=True, slots=True)
class _OtherForm:
    """A text in the place of an object that may have the argument, in another form than JSON."""

    text: str
    name: str


def _may_be_given(forms: list[_OtherForm]) -> bool:
    """Whether a text may give an argument as a form (`path=…`), YAML, JSON with comments, or encoded."""
    for name in {form.name for form in forms}:
        text = "\n".join(form.text for form in forms if form.name == name)
        wanted = re.compile(rf"(?<![^\W_]){written_name(name)}(?![^\W_])")
        is_long = len(text) > MAX_PATH_LENGTH
        spellings = (text,) if is_long else spellings_of(text)
        if any(wanted.search(plain_key(each)) for each in spellings) or (is_long and _ESCAPE.search(text)):
            return True
    return False


_ESCAPE = re.compile(r"[%\\&=+]")
"""What begins an escape: a long text is not decoded to look for a name."""
_INHERITED: Final = frozenset({"__proto__", "constructor", "prototype"})
"""Keys whose members an object has too once JavaScript has copied it."""


def _parse_nested_json(text: str) -> object:
    """Parse JSON in a text, also JSON in JSON; a lenient parser may read what this one cannot."""
    value: object = text
    for _ in range(3):
        if not isinstance(value, str):
            break
        text, value = value, json_in(value)
        if value is None and _LIKE_AN_OBJECT.match(text):
            return UNREAD
    return value


_LIKE_AN_OBJECT = re.compile(r"[\ufeff\s]*+(?:\[[\s\[]*+)?\{")


def json_in(text: str) -> object:
    """Parse a text as JSON, as some servers do; None where it is not JSON."""
    text = text.lstrip("\ufeff \t\r\n")
    if text[:1] in ("{", "[", '"') and len(text) <= 1024 * 1024:
        with contextlib.suppress(ValueError, RecursionError):
            decoded: object = decode_finite(text.encode())
            return json.loads(text, object_pairs_hook=_all_members) if "{" in text else decoded
    return None


def _all_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Object that keeps all values of repeated names, since parsers differ in which one counts."""
    members = dict(pairs)
    if len(members) < len(pairs):
        values: dict[str, list[object]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        members.update({name: several for name, several in values.items() if len(several) > 1})
    return members


# Names and flags, in every spelling and convention.


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
