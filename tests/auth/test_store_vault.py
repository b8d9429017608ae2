"""Logins in a shared store, of which a newer release may have written some."""

import msgspec
import pytest

from fairlead.auth.store_vault import NAMESPACE, StoreVault
from fairlead.auth.tokens import Login, OAuthClient, Token
from fairlead.errors import StoreError
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import ANY
from tests.conftest import Machine

LOGIN = Login(
    principal="local",
    account="default",
    issuer="https://issuer.example",
    resource="https://x.example/mcp",
    token_endpoint="https://issuer.example/token",
    client=OAuthClient(client_id="c"),
    token=Token(access_token="first"),
)
OTHER = msgspec.structs.replace(LOGIN, resource="https://y.example/mcp")


async def test_a_login_of_a_newer_release_is_neither_read_nor_overwritten(machine: Machine) -> None:
    async with AsyncStore.open(machine.home / "s.db") as store:
        vault = StoreVault(store)
        await vault.put(LOGIN)
        await vault.put(OTHER)
        names = {stored.key: stored for stored in await store.scan(NAMESPACE)}
        (name,) = [key for key, stored in names.items() if b"x.example" in stored.value]
        newer = msgspec.json.encode({**msgspec.json.decode(names[name].value), "token": ["of", "later"]})
        await store.put(NAMESPACE, name, newer, expect=ANY)
        with pytest.raises(StoreError, match="newer Fairlead"):
            await vault.get(LOGIN.key)
        with pytest.raises(StoreError, match="newer Fairlead"):
            await vault.find(LOGIN.principal, LOGIN.account, LOGIN.resource)
        with pytest.raises(StoreError, match="newer Fairlead"):
            await vault.put(LOGIN)
        kept = await store.get(NAMESPACE, name)
        assert kept is not None
        assert kept.value == newer
        assert await vault.get(OTHER.key) == OTHER
        assert await vault.logins() == [OTHER]
        await vault.delete(LOGIN.key)
        await vault.put(LOGIN)
        assert await vault.get(LOGIN.key) == LOGIN


async def test_a_login_that_is_damaged_is_none_and_the_next_one_takes_its_place(machine: Machine) -> None:
    async with AsyncStore.open(machine.home / "s.db") as store:
        vault = StoreVault(store)
        await vault.put(LOGIN)
        (stored,) = await store.scan(NAMESPACE)
        await store.put(NAMESPACE, stored.key, stored.value[:20], expect=ANY)
        assert await vault.get(LOGIN.key) is None
        await vault.put(LOGIN)
        assert await vault.get(LOGIN.key) == LOGIN
