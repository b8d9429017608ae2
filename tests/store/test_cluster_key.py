"""The cluster key: what it sealed opens with it, in its place, and not otherwise."""

import pytest

from fairlead.errors import StoreError
from fairlead.store.cluster_key import ClusterKeys, new_cluster_key

KEY, OTHER = new_cluster_key(), new_cluster_key()


def test_what_was_sealed_opens_in_its_place_in_any_process_with_the_key() -> None:
    sealed = ClusterKeys([KEY]).seal(b"a token", b"logins:a")
    assert b"token" not in sealed
    assert ClusterKeys([KEY]).open(sealed, b"logins:a") == b"a token"


def test_the_same_value_is_never_sealed_alike() -> None:
    keys, same = ClusterKeys([KEY]), ClusterKeys([KEY])
    assert len({each.seal(b"yes", b"a") for each in (keys, same) for _ in range(100)}) == 200


@pytest.mark.parametrize("place", [b"logins:b", b"", b"logins:a "])
def test_a_value_does_not_open_in_another_place(place: bytes) -> None:
    keys = ClusterKeys([KEY])
    with pytest.raises(StoreError, match="changed by another program"):
        keys.open(keys.seal(b"yes", b"logins:a"), place)


def test_no_byte_can_be_changed_or_left_out() -> None:
    keys = ClusterKeys([KEY])
    sealed = keys.seal(b"yes", b"a")
    for index in range(len(sealed)):
        changed = bytearray(sealed)
        changed[index] ^= 1
        for attempt in (bytes(changed), sealed[:index]):
            with pytest.raises(StoreError):
                keys.open(attempt, b"a")


def test_another_key_does_not_open_it_and_says_which_is_needed() -> None:
    sealed = ClusterKeys([KEY]).seal(b"yes", b"a")
    with pytest.raises(StoreError, match="another cluster key") as caught:
        ClusterKeys([OTHER]).open(sealed, b"a")
    assert "every replica" in (caught.value.hint or "")


def test_while_keys_change_the_first_seals_and_all_open() -> None:
    old, both = ClusterKeys([KEY]), ClusterKeys([OTHER, KEY])
    before, after = old.seal(b"1", b"a"), both.seal(b"2", b"a")
    assert (both.open(before, b"a"), both.open(after, b"a")) == (b"1", b"2")
    assert (both.is_current(before), both.is_current(after)) == (False, True)


def test_keys_for_other_purposes_differ_by_purpose_and_agree_among_replicas() -> None:
    one, same = ClusterKeys([OTHER, KEY]), ClusterKeys([OTHER, KEY])
    assert one.derive("session ids") == same.derive("session ids")
    assert one.derive("session ids")[0] == ClusterKeys([OTHER]).derive("session ids")[0]
    assert len({*one.derive("session ids"), *one.derive("replicas")}) == 4


@pytest.mark.parametrize(
    "text",
    ["correct horse battery staple", "flkey_", "flkey_c2hvcnQ", KEY[:-4], KEY[6:]],
    ids=["words", "empty", "short", "cut", "without its prefix"],
)
def test_what_could_be_guessed_is_no_key(text: str) -> None:
    with pytest.raises(StoreError, match="not one that Fairlead made") as caught:
        ClusterKeys([text])
    assert text not in str(caught.value)
