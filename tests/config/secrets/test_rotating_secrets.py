"""Secrets that are renewed again and again, long ones, and those that an authorization server chooses."""

import base64
import random
import secrets
import string

import pytest

from fairlead.config.secrets.masking import KEPT_PER_OWNER, MASK, MAX_ENCODED_SECRETS, Masker
from fairlead.config.secrets.redaction import is_distinctive

pytestmark = pytest.mark.requirement("HARD-62")

CONFIGURED = "sk_conf_9f8A7b6C5d4E3f2G1h"


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def test_no_number_of_renewed_tokens_makes_a_configured_secret_forgotten() -> None:
    masker = Masker()
    masker.learn(CONFIGURED)
    for number in range(2 * MAX_ENCODED_SECRETS):
        masker.learn(secrets.token_urlsafe(24), secrets.token_urlsafe(24), owner="a login")
        masker.learn(secrets.token_urlsafe(24), owner=number)
    assert masker.mask_known(f"x {encoded(CONFIGURED)} y {CONFIGURED}") == f"x {MASK} y {MASK}"


def test_one_owner_that_renews_its_token_all_the_time_forgets_only_its_own() -> None:
    masker = Masker()
    other = secrets.token_urlsafe(24)
    masker.learn(other, owner="another login")
    had = [secrets.token_urlsafe(24) for _ in range(MAX_ENCODED_SECRETS)]
    for token in had:
        masker.learn(token, owner="a login")
    assert masker.mask_known(encoded(other)) == MASK
    for token in had[-KEPT_PER_OWNER:]:
        assert masker.mask_known(encoded(token)) == MASK
    assert masker.mask_known(encoded(had[0])) == encoded(had[0])
    assert masker.mask(f"plainly {had[0]}") == f"plainly {MASK}"


def test_a_value_that_was_forgotten_is_known_again_when_it_is_learned_again() -> None:
    masker = Masker()
    had = [secrets.token_urlsafe(24) for _ in range(MAX_ENCODED_SECRETS + 1)]
    for number, token in enumerate(had):
        masker.learn(token, owner=number)
    assert masker.mask_known(encoded(had[0])) != MASK
    generation = masker.generation
    masker.learn(had[0], owner=0)
    assert masker.mask_known(encoded(had[0])) == MASK
    assert masker.generation > generation
    for number in range(1, MAX_ENCODED_SECRETS // 2):
        masker.learn(had[-1], owner=number)
        masker.learn(had[0], owner=0)  # in use, and so not the oldest
    assert masker.mask_known(encoded(had[0])) == MASK


def test_what_is_known_already_costs_nothing_to_learn_again() -> None:
    masker = Masker()
    masker.learn(CONFIGURED)
    masker.learn("a-token-1234567890", owner="a login")
    generation = masker.generation
    masker.learn(CONFIGURED)
    masker.learn("a-token-1234567890", owner="a login")
    assert masker.generation == generation


@pytest.mark.parametrize("size", [3000, 8192, 65_536, 250_000])
def test_a_long_secret_is_masked_whole_and_does_not_widen_the_window(size: int) -> None:
    masker = Masker()
    secret = "eyJ" + "".join(random.Random(size).choices(string.ascii_letters + string.digits, k=size))
    masker.learn(secret)
    assert masker.reach <= 12 * (2048 + 128)
    for said in (secret, encoded(secret), encoded("xy" + secret), secret.encode().hex()):
        shown = masker.mask_known(f"before {said} after")
        assert shown.startswith("before ")
        assert shown.endswith(" after")
        # Between the parts, letters of base64 may be left that belong to both.
        assert len(shown.replace(MASK, "")) < len(said) / 100
    assert secret[size // 2 : size // 2 + 4096] not in masker.mask_known(secret[size // 2 :])


def test_an_echo_of_half_of_a_long_secret_is_masked() -> None:
    masker = Masker()
    secret = "".join(random.Random(1).choices(string.ascii_letters, k=8192))
    masker.learn(secret)
    assert len(masker.mask_known(secret[: len(secret) // 2]).replace(MASK, "")) < 64


def test_a_long_secret_of_escapes_is_found_where_they_are_decoded() -> None:
    masker = Masker()
    plain = "".join(random.Random(2).choices(string.ascii_letters + string.digits, k=9000))
    secret = plain.replace("A", "%41").replace("Q", "\\u0051")
    masker.learn(secret)
    assert MASK in masker.mask_known(plain)


@pytest.mark.parametrize(
    "value",
    [
        *("read_file", "function", "https://", "create_pull_request", "createPullRequestReview"),
        *("https://api.github.com/v3/", "search_repositories2", "2026-11-19T20:00:00Z", "aB3dE5gH7"),
        *("CREATE TABLE customers", "ListAllMyBuckets", "the quick brown fox jumps"),
        *("0000000000000000", " " * 20),
    ],
)
def test_words_that_an_authorization_server_issues_as_tokens_are_not_masked(value: str) -> None:
    assert not is_distinctive(value)


def test_tokens_as_servers_really_issue_them_are_masked() -> None:
    for _ in range(200):
        issued = f"{secrets.token_urlsafe(32)}12", secrets.token_hex(32), f"gho_{secrets.token_urlsafe(24)}1"
        assert all(map(is_distinctive, issued))
    assert is_distinctive("eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF123")
    assert is_distinctive("0f8fad5b-d9cb-469f-a165-70867728950e")
