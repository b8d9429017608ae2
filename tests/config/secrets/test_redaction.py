"""Secrets in running text, by value and by shape, and in what is logged."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from fairlead.config.secrets.log_filter import LOGGERS, MaskingHandler, mask_logs
from fairlead.config.secrets.masking import MASK, MAX_SECRETS, Masker, has_token
from fairlead.config.secrets.redaction import literal_secrets, redact_entry, secret_parts, secret_values

RANDOM = "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5"
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{RANDOM}\n{RANDOM}\n-----END RSA PRIVATE KEY-----"

SHOWN = {
    f"Bearer {RANDOM}": f"Bearer {MASK}",
    f"got a bearer {RANDOM}, sorry": f"got a bearer {MASK}, sorry",
    "Basic dXNlcjpwYXNz": f"Basic {MASK}",
    f"Authorization: Custom a b {RANDOM}\nHost: x": f"Authorization: {MASK}\nHost: x",
    f"{{'Authorization': 'Bearer {RANDOM}', 'A': 'b'}}": f"{{'Authorization': '{MASK}', 'A': 'b'}}",
    f"proxy-authorization={RANDOM}": f"proxy-authorization={MASK}",
    f"Set-Cookie: session={RANDOM}; Path=/": f"Set-Cookie: {MASK}",
    f"X-Api-Key: {RANDOM}": f"X-Api-Key: {MASK}",
    f"sk-proj-{RANDOM} is mine": f"{MASK} is mine",
    f"ghp_{RANDOM}": MASK,
    f"(github_pat_{RANDOM})": f"({MASK})",
    f"xoxb-{RANDOM}": MASK,
    f"glpat-{RANDOM}": MASK,
    f"hf_{RANDOM}": MASK,
    "AKIAIOSFODNN7EXAMPLE": MASK,
    f"eyJ{RANDOM}.eyJ{RANDOM}.{RANDOM}": MASK,
    f"the key:\n{KEY}\nwas read": f"the key:\n{MASK}\nwas read",
    f"cut off: -----BEGIN PRIVATE KEY-----\n{RANDOM}": f"cut off: {MASK}",
    "https://me:hunter2@host/path?x=1": f"https://{MASK}@host/path?x=1",
    f"https://host/cb?code={RANDOM}&state=1": f"https://host/cb?code={MASK}&state=1",
    f"grant_type=x&refresh_token={RANDOM}&client_secret=hunter2": (
        f"grant_type=x&refresh_token={MASK}&client_secret={MASK}"
    ),
    f'{{"access_token": "{RANDOM}", "expires_in": 60}}': f'{{"access_token": "{MASK}", "expires_in": 60}}',
    f'said "{{\\"id_token\\":\\"{RANDOM}\\"}}"': f'said "{{\\"id_token\\":\\"{MASK}\\"}}"',
    "DB_PASSWORD=hunter2": f"DB_PASSWORD={MASK}",
}
PLAIN = [
    "the request failed with code=5 after 3 s",
    "basic authentication is required",
    "a bearer token is missing",
    "error secret_unavailable: the environment variable `X` is not set",
    "http://localhost:8080/mcp answered 401",
    "see http://host:8080?mail=me@example.org",
    "risk-assessment-of-many-things.md",
    "npm_config_registry is set",
    "server `github`: no answer in time",
]


@pytest.mark.requirement("HARD-10")
@pytest.mark.parametrize(("text", "shown"), SHOWN.items(), ids=lambda value: str(value)[:20])
def test_the_shapes_of_secrets_are_masked_and_what_they_are_stays_readable(text: str, shown: str) -> None:
    masked = Masker().mask(text)
    assert masked == shown
    assert Masker().mask(masked) == shown
    assert has_token(text)


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert Masker().mask(text) == text
    assert not has_token(text)


@pytest.mark.requirement("HARD-10")
def test_a_value_that_was_learnt_is_masked_in_every_spelling() -> None:
    masker = Masker()
    secret = 'p&ss "wörd"'
    masker.learn(secret)
    said = f"raw {secret}, in a URL {quote(secret, safe='')}, in JSON {json.dumps(secret)}"
    assert masker.mask(said) == f'raw {MASK}, in a URL {MASK}, in JSON "{MASK}"'


def test_a_word_too_short_to_be_a_secret_is_not_learnt() -> None:
    masker = Masker()
    masker.learn("", "true", "admin")
    assert masker.mask("true: admin") == "true: admin"


def test_only_so_many_values_are_known_and_the_oldest_are_forgotten() -> None:
    masker = Masker()
    masker.learn(*(f"value-{number:05}-" for number in range(MAX_SECRETS + 1)))
    assert masker.mask("value-00000-") == "value-00000-"
    assert masker.mask(f"value-{MAX_SECRETS:05}-") == MASK


HOSTILE = (
    *("eyJ-", "-eyJ", "sk-", "-sk", "ghp_", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "://a:", "://"),
    *(
        "bearer ",
        "bearer\t",
        "basic A",
        "authorization: ",
        "authorization:'",
        "access_token=",
        '"access_token":',
    ),
    *("?code=", "-", "a", '"', "\\", "secret_", "secret_-", "AKIA", "A", " ", "cookie=", "key=", "://:@"),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_more_than_its_share_of_time(piece: str) -> None:
    masker = Masker()

    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        started = time.process_time()
        masker.mask(text)
        return time.process_time() - started

    # A time that grows with the square would be a hundred times as long, and many seconds.
    assert seconds(300_000) < max(30 * seconds(30_000), 1.0)


def test_the_secrets_of_an_entry_are_known_by_name_by_shape_and_by_where_they_were_kept() -> None:
    entry = {
        "command": "run",
        "args": ["--token=${TOKEN}", "--mode", "production", "--header", "Authorization: Bearer abcdef-1"],
        "env": {
            "API_KEY": "${KEY}",
            "MODE": "production",
            "NOTE": "${keyring:service/user}",
            "HOME": "${HOME}",
        },
        "url": "https://me:hunter22@host/?token=query-secret&page=second-page",
    }
    resolved = {
        "command": "run",
        "args": ["--token=flag-secret", "--mode", "production", "--header", "Authorization: Bearer abcdef-1"],
        "env": {
            "API_KEY": "key-secret",
            "MODE": "production",
            "NOTE": "kept-apart",
            "HOME": "/home/somebody",
        },
        "url": "https://me:hunter22@host/?token=query-secret&page=second-page",
    }
    masker = Masker()
    masker.learn(*secret_values(entry, resolved))
    for secret in ("flag-secret", "key-secret", "kept-apart", "hunter22", "query-secret", "abcdef-1"):
        assert masker.mask(f"<{secret}>") == f"<{MASK}>"
    for word in ("production", "/home/somebody", "second-page"):
        assert masker.mask(word) == word


@pytest.mark.requirement("HARD-10")
@pytest.mark.parametrize(
    ("arguments", "shown", "secret"),
    [
        (["-e", "PGPASSWORD=hunter2"], ["-e", f"PGPASSWORD={MASK}"], "hunter2"),
        (["--env=API_KEY=a=b"], [f"--env=API_KEY={MASK}"], "a=b"),
        (["API_KEY=hunter2", "npx"], [f"API_KEY={MASK}", "npx"], "hunter2"),
        (["-e", f"GITHUB_PAT=ghp_{RANDOM}"], ["-e", f"GITHUB_PAT={MASK}"], f"ghp_{RANDOM}"),
        (["-e", "DB_URL=mysql://me:hunter2@h/x"], ["-e", f"DB_URL={MASK}"], "hunter2"),
        (["--token", "ABCD=="], ["--token", MASK], "ABCD=="),
    ],
)
def test_a_variable_in_an_argument_is_a_secret_as_it_is_in_the_environment(
    arguments: list[str], shown: list[str], secret: str
) -> None:
    entry: dict[str, Any] = {"command": "docker", "args": arguments}
    assert redact_entry(entry)["args"] == shown
    (path,) = literal_secrets(entry)
    assert secret_parts(entry, path) == [secret]
    assert secret in secret_values(entry, entry)


@pytest.mark.parametrize(
    "argument",
    [
        "LOG_LEVEL=debug",
        "AUTH_URL=https://login.example/x",
        "API_KEY=${KEY}",
        "DB_URL=mysql://me:${KEY}@h",
        "--env=X=1",
        "USE_AUTH=true",
    ],
)
def test_a_variable_in_an_argument_that_holds_no_secret_stays_as_it_is(argument: str) -> None:
    entry: dict[str, Any] = {"command": "docker", "args": ["-e", argument]}
    assert redact_entry(entry) == entry
    assert not [*literal_secrets(entry)]


# Logs.


@pytest.fixture
def masker() -> Iterator[Masker]:
    """A masker on the package's logger, in place of the one a host may have put there."""
    before = {name: logging.getLogger(name).handlers[:] for name in LOGGERS}
    for name, handlers in before.items():
        kept = [handler for handler in handlers if not isinstance(handler, MaskingHandler)]
        logging.getLogger(name).handlers = kept
    masker = Masker()
    masker.learn("hunter2-secret")
    mask_logs(masker.mask)
    yield masker
    for name, handlers in before.items():
        logging.getLogger(name).handlers = handlers


class Extras(logging.Formatter):
    """Shows a field that only came as an extra."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{super().format(record)} reason={getattr(record, 'reason', '')}"


@pytest.mark.requirement("HARD-10")
@pytest.mark.usefixtures("masker")
def test_messages_arguments_extras_and_tracebacks_are_masked_in_every_logger_of_the_package(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.handler.setFormatter(Extras())
    logger = logging.getLogger("fairlead.connection.one_that_is_loaded_late")
    logger.debug("sent %s with %d", "hunter2-secret", 3)
    logger.info("failed", extra={"reason": f"Authorization: Bearer {RANDOM}"})
    try:
        raise ValueError("token hunter2-secret refused")
    except ValueError:
        logger.exception("broke")
    assert "hunter2" not in caplog.text
    assert RANDOM not in caplog.text
    assert f"sent {MASK} with 3" in caplog.text
    assert f"ValueError: token {MASK} refused" in caplog.text
    assert f"reason=Authorization: {MASK}" in caplog.text


@pytest.mark.requirement("HARD-62")
@pytest.mark.usefixtures("masker")
@pytest.mark.parametrize("name", ["mcp.client.session", "mcp.shared.dispatcher", "client", "aiohttp.client"])
def test_what_the_libraries_log_of_servers_is_masked_too(caplog: pytest.LogCaptureFixture, name: str) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.handler.setFormatter(Extras())
    logger = logging.getLogger(name)
    logger.debug("dropped %r", "notifications/hunter2-secret")
    logger.warning("odd", extra={"reason": ["hunter2-secret", 3]})
    try:
        raise ValueError("input_value='hunter2-secret'")
    except ValueError:
        logger.warning("Failed to validate notification: %s", "x", exc_info=True)
    assert "hunter2" not in caplog.text
    assert caplog.text.count(MASK) >= 3


@pytest.mark.usefixtures("masker")
def test_logs_of_others_and_logs_without_secrets_are_as_they_were(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("elsewhere").warning("hunter2-secret")
    logging.getLogger("fairlead.host").warning("%s of %d", "one", 2)
    other, ours = caplog.records
    assert other.getMessage() == "hunter2-secret"
    assert (ours.msg, ours.args) == ("%s of %d", ("one", 2))


def test_a_log_is_masked_by_one_handler_however_often_it_is_asked_for(masker: Masker) -> None:
    mask_logs(masker.mask)
    handlers = logging.getLogger("fairlead").handlers
    assert sum(isinstance(handler, MaskingHandler) for handler in handlers) == 1


@pytest.mark.usefixtures("masker")
def test_a_program_without_logging_still_sees_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.lastResort, "formatter", None)  # commands in other tests set one
    logging.getLogger("fairlead.host").warning("beware of hunter2-secret")
    logging.getLogger("fairlead.host").info("nothing to see")
    assert capsys.readouterr().err == f"beware of {MASK}\n"


@pytest.mark.usefixtures("masker")
def test_a_record_that_cannot_be_formatted_does_not_raise(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.getLogger("fairlead").handlers[0]
    handler.handle(logging.LogRecord("fairlead", logging.INFO, "x.py", 1, "%d", ("no number",), None))
    assert "Logging error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"env": {"DB": "postgres://u:${PASSWORD}@localhost/db"}}, []),
        ({"env": {"DSN": "https://${KEY}@example.com/1"}}, []),
        ({"url": "http://user:${PASSWORD}@127.0.0.1/mcp"}, []),
        ({"args": ["postgres://u:${PASSWORD}@localhost/db"]}, []),
        ({"env": {"DB": "postgres://u:word@localhost/db"}}, [("env", "DB")]),
        ({"env": {"DB": "postgres://u:${PASSWORD:-word}@localhost/db"}}, [("env", "DB")]),
        ({"url": "http://user:word@127.0.0.1/mcp"}, [("url",)]),
        ({"url": "https://token@127.0.0.1/mcp"}, [("url",)]),
    ],
)
def test_a_url_whose_password_is_a_reference_holds_no_secret(
    entry: dict[str, Any], found: list[tuple[str, ...]]
) -> None:
    assert list(literal_secrets(entry)) == found
