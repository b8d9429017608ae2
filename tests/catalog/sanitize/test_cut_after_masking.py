"""Nothing is cut before it is masked: half of a secret would not be known as one."""

from collections.abc import Callable

import msgspec
import pytest

from fairlead.auth import url_guard
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import hidden_text
from fairlead.catalog.schema.normalize import UnusableKeyword as UnusableSchema
from fairlead.catalog.schema.normalize import keyword_value
from fairlead.catalog.schema.validate import check_arguments
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.secrets.masking import SECRETS, Masker
from fairlead.connection.process.stderr import OutputTail, StderrLog
from fairlead.connection.server_messages import MAX_INFO_TEXT, repair_handshake
from fairlead.host.elicitation.form_schema import escape_text as form_text
from fairlead.host.offers.uri_templates import read_template
from fairlead.jsonrpc.frames import UnusableLine, parse
from fairlead.policy.argument_shapes import SafeNames, mask_arguments
from fairlead.policy.results import ResultSource, prepare_result

pytestmark = pytest.mark.requirement("HARD-62")

SECRET = "Zx81kQ7vLm2TgYw94BnRd0PsUeHc6AfJ"
LONG = "".join(f"{SECRET[index % 32 :]}{index:03d}" for index in range(60))
"""As long as some access tokens are: over a thousand characters."""


def entry_with(**definition: object) -> ToolEntry:
    return ToolEntry(
        key=ToolKey(server_id="s", tool="t"),
        definition=msgspec.json.encode({"name": "t", "inputSchema": {"type": "object"}, **definition}),
    )


def as_tags(text: str) -> str:
    return "".join(chr(0xE0000 + ord(character)) for character in text)


def finding_of_tags(text: str) -> str:
    return " ".join(found.sample for found in hidden_text(entry_with(description=f"x{as_tags(text)}")))


def finding_in_result(text: str) -> str:
    cleaner = gate.Cleaner()
    cleaner.text(f"x{as_tags(text)}")
    return " ".join(found.sample for found in cleaner.found.values())


def noise(text: str) -> str:
    tail = OutputTail()
    (unusable,) = parse(text.encode())
    assert isinstance(unusable, UnusableLine)
    tail.keep(unusable.excerpt)
    return "\n".join(tail.lines)


def kept_noise(text: str) -> str:
    tail = OutputTail()
    tail.keep(f"first line\n{text}".encode())
    return "\n".join(tail.all_lines)


def stderr(text: str) -> str:
    log = StderrLog()
    for start in range(0, len(text), 700):
        log.feed(text[start : start + 700].encode())
    log.finish()
    return "\n".join(log.tail.all_lines)


def bad_type(text: str) -> str:
    with pytest.raises(UnusableSchema) as refused:
        keyword_value("type", text)
    return str(refused.value)


def bad_template(text: str) -> str:
    with pytest.raises(ValueError, match="template") as refused:
        read_template(f"{{{text.replace(' ', '-')}-}}")
    return str(refused.value)


def bad_argument(text: str) -> str:
    entry = entry_with(
        inputSchema={"type": "object", "properties": {"a": {"enum": [text, "other"]}}, "required": ["a"]}
    )
    return " ".join(check_arguments(entry, {"a": 1}).problems)


def server_title(text: str) -> str:
    handshake = repair_handshake({"protocolVersion": "x", "serverInfo": {"name": "n", "title": text}})
    return gate.content(handshake["serverInfo"]["title"], MAX_INFO_TEXT)


def audited_name(text: str) -> str:
    return SafeNames(SECRETS)(text)


def audited_key(text: str) -> str:
    return str(mask_arguments({text: 1}, SECRETS))


def audited_value(text: str) -> str:
    return str(mask_arguments({"note": text}, SECRETS))


def unopened_result(text: str) -> str:
    """What is shown of a result with too many values to be opened."""
    values = [0] * (gate.MAX_VALUES + 1)
    raw = msgspec.json.encode({"content": [{"type": "text", "text": text}], "structuredContent": values})
    source = ResultSource(server_id="s", tool="t", trusted=False, limit=10_000)
    return prepare_result(raw, source).result.text


PLACES: dict[str, tuple[Callable[[str], str], tuple[int, ...]]] = {
    "a finding": (finding_of_tags, (180, 780, 8180)),
    "a finding in a result": (finding_in_result, (180, 780, 8180)),
    "a line beside the protocol": (noise, (380, 480, 1980)),
    "lines beside the protocol": (kept_noise, (480, 1970)),
    "stderr": (stderr, (480, 1980)),
    "a type of a schema": (bad_type, (20, 30)),
    "a URI template": (bad_template, (20, 30)),
    "a value that a schema wants": (bad_argument, (250, 280)),
    "a server's title": (server_title, (1000, 4080)),
    "an error of an issuer": (url_guard.escape_text, (180, 780)),
    "a form's description": (form_text, (980, 1980, 7980)),
    "a name in the audit": (audited_name, (100, 4080)),
    "a key in the audit": (audited_key, (100, 4080)),
    "a value in the audit": (audited_value, (1980,)),
    "a result that is not opened": (unopened_result, (1950, 1960)),
    "an error": (lambda text: gate.text(text, 200), (180, 780)),
    "content": (lambda text: gate.content(text, 200), (180, 780)),
}
"""Where a text is shown, and how far into it a secret may be when a cut goes through it."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secret", [SECRET, LONG], ids=["short", "long"])
def test_no_half_of_a_secret_is_left_where_a_text_is_cut(place: str, secret: str) -> None:
    show, offsets = PLACES[place]
    SECRETS.learn(secret)
    for offset in (0, 5, *offsets):
        for after in ("", " and a rest " * 1000):
            said = show("word " * (offset // 5) + secret + after)
            assert secret[:8] not in said, (place, offset, said)


def in_escapes(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


@pytest.mark.parametrize("limit", [40, 80, 200, 4096])
@pytest.mark.parametrize("write", [str, in_escapes])
def test_a_secret_longer_than_what_is_shown_is_masked(limit: int, write: Callable[[str], str]) -> None:
    SECRETS.learn(LONG)
    said = gate.text(f"token: {write(LONG)} and more" + " and more" * limit, limit)
    assert write(LONG[:4]) not in said


def test_a_hidden_character_in_a_secret_does_not_bring_it_into_the_audit() -> None:
    masker = Masker()
    masker.learn(SECRET)
    split = "\u200b".join((SECRET[:9], SECRET[9:]))
    assert SECRET not in str(mask_arguments({"note": split, split: 1}, masker))
    assert SECRET not in SafeNames(masker)(split)
