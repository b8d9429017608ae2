"""Arguments in audit records: shape, keyed digest, and on request their values with secrets masked."""

import hashlib
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, cast

import msgspec

from fairlead.catalog.sanitize.slices import decode_finite
from fairlead.catalog.sanitize.text import clean
from fairlead.config.secrets.masking import MASK, Masker
from fairlead.config.secrets.redaction import looks_secret
from fairlead.config.untyped import is_object

MAX_NAME = 120
MAX_KEYS = 24
MAX_INNER_KEYS = 8
MAX_VALUE_CHARACTERS = 2000
MAX_VALUE_ITEMS = 100
MAX_VALUE_DEPTH = 6
MAX_DECODED_BYTES = 64 * 1024
_MAX_NAMES_KNOWN = 4096
_MAX_LOOKED_AT = 4096
_INT64 = 1 << 63

MORE = "…"

Shape = dict[str, Any]


class SafeNames:
    """Sanitized, masked and shortened names that callers and models chose, cached per name.

    The same few names come with every call.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._generation = masker.generation
        self._safe: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Return the name as it may be recorded."""
        if self._generation == self._masker.generation and (known := self._safe.get(name)) is not None:
            return known
        return self._look_at(name)

    def _look_at(self, name: str) -> str:
        if self._generation != self._masker.generation or len(self._safe) >= _MAX_NAMES_KNOWN:
            self._generation = self._masker.generation
            self._safe.clear()
        safe = _safe_name(name, self._masker)
        if len(name) <= _MAX_LOOKED_AT:
            self._safe[name] = safe
        return safe


def _safe_name(name: str, masker: Masker) -> str:
    # Sanitized, masked, then cut: a hidden character or a cut would keep a secret from being found.
    safe = masker.mask(clean(name[: _MAX_LOOKED_AT + masker.reach]))
    return safe if len(safe) <= MAX_NAME else safe[:MAX_NAME] + MORE


class Fingerprint:
    """Keyed digest of arguments: equal for equal arguments, and not guessable without the key.

    Keyed BLAKE2 takes a fifth of the time of an HMAC.
    """

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=16)

    def __call__(self, arguments: Mapping[str, Any] | msgspec.Raw) -> str:
        """Digest of the arguments, independent of the order of names; empty where they are not JSON."""
        try:
            canonical = _encode_in_order(arguments) if is_object(arguments) else _canonical(arguments)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return ""
        digest = self._keyed.copy()
        digest.update(canonical)
        return digest.hexdigest()


def _canonical(arguments: Mapping[str, Any] | msgspec.Raw) -> bytes:
    if isinstance(arguments, msgspec.Raw):
        if len(arguments) > MAX_DECODED_BYTES:
            return bytes(arguments)
        arguments = decode_finite(bytes(arguments))
    else:
        arguments = dict(arguments)
    return _encode_in_order(arguments)


_encode_in_order = msgspec.json.Encoder(order="deterministic").encode


def shape_of(arguments: Mapping[str, Any] | msgspec.Raw, name: Callable[[str], str]) -> Shape:
    """Types and sizes of arguments without their values: `{"path": "string(12)"}`."""
    if isinstance(arguments, msgspec.Raw):
        if len(arguments) > MAX_DECODED_BYTES:
            return {MORE: f"json({len(arguments)})"}
        try:
            arguments = cast("dict[str, Any]", decode_finite(bytes(arguments)))
        except (ValueError, RecursionError):
            return {MORE: "not JSON"}
    return _shape(arguments, name, MAX_KEYS)


def _shape(arguments: Mapping[str, Any], name: Callable[[str], str], keys: int) -> Shape:
    shape: Shape = {}
    for key, value in arguments.items() if len(arguments) <= keys else islice(arguments.items(), keys):
        kind = cast("type[object]", type(value))
        if kind is str or kind is list:
            described = f"{'string' if kind is str else 'array'}({len(value)})"
        elif kind is dict:
            inner = cast("dict[str, Any]", value)
            described = _shape(inner, name, MAX_INNER_KEYS) if keys == MAX_KEYS else f"object({len(inner)})"
        else:
            described = _KINDS.get(kind, "other")
        shape[name(str(key))] = described
    if len(arguments) > keys:
        shape[MORE] = f"{len(arguments) - keys} more"
    return shape


_KINDS: dict[type, str] = {bool: "boolean", int: "integer", float: "number", type(None): "null"}


def mask_arguments(arguments: Mapping[str, Any] | msgspec.Raw, masker: Masker) -> object:
    """Copy of the arguments with secrets masked, bounded in size and depth."""
    if isinstance(arguments, msgspec.Raw):
        try:
            return mask_value("", decode_finite(bytes(arguments)), masker)
        except (ValueError, RecursionError):
            return None
    return mask_value("", dict(arguments), masker)


def mask_value(name: str, value: object, masker: Masker, depth: int = MAX_VALUE_DEPTH) -> object:
    """Copy of a JSON value with secrets masked, bounded in size and depth."""
    if isinstance(value, str):
        # Masked before it is cut: half a secret would not be recognized.
        shown = masker.mask(clean(value[:MAX_DECODED_BYTES]))
        if looks_secret(name, shown[:MAX_VALUE_CHARACTERS]):
            return MASK
        return shown if len(shown) <= MAX_VALUE_CHARACTERS else shown[:MAX_VALUE_CHARACTERS] + MORE
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else MORE
    if depth == 0:
        return MORE
    if isinstance(value, dict):
        fields = islice(cast("dict[object, object]", value).items(), MAX_VALUE_ITEMS)
        return {
            _safe_name(str(key), masker): mask_value(str(key), item, masker, depth - 1)
            for key, item in fields
        }
    if isinstance(value, list | tuple):
        items = islice(cast("list[object]", value), MAX_VALUE_ITEMS)
        return [mask_value(name, item, masker, depth - 1) for item in items]
    return MORE
