"""Tokens are renewed once, by whoever is first, and are never lost."""

import contextlib
import logging
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from fairlead.auth.broker import Broker
from fairlead.auth.tokens import OAuthClient, Token
from fairlead.auth.vault import FILE_NAME, Vault
from fairlead.errors import AuthRequired, IssuerUnavailable, LockLost, LoginFailed, TokenRefused
from fairlead.store.async_store import AsyncStore
from fairlead.testing.fixtures import FakeClock
from tests.auth import refreshing_process
from tests.auth.disks import full_disk
from tests.auth.issuing import RESOURCE, Issuer, adopted, another_process, fresh
from tests.auth.refreshing_process import make_login

PATIENCE = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[AsyncStore]:
    async with AsyncStore.open(folder / "state.db") as store:
        yield store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def issuer(clock: FakeClock) -> Issuer:
    return Issuer(clock)


@pytest.fixture
def vault(folder: Path) -> Vault:
    return Vault(folder / FILE_NAME, place="file")


@pytest.fixture
async def broker(vault: Vault, store: AsyncStore, issuer: Issuer, clock: FakeClock) -> AsyncIterator[Broker]:
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            yield Broker(vault, store, issuer.renew, tasks, clock=clock)


async def test_a_token_that_has_time_is_given_out_without_looking_anywhere(
    broker: Broker, issuer: Issuer, folder: Path
) -> None:
    login = await adopted(broker, issuer)
    (folder / FILE_NAME).unlink()
    found = await broker.current("local", "", RESOURCE)
    assert found is not None
    assert await fresh(broker, found.key) == login.token.access_token
    assert not issuer.asked


@pytest.mark.requirement("HARD-33", "HARD-34")
async def test_after_a_restart_an_expired_token_is_renewed_where_it_came_from(
    broker: Broker, issuer: Issuer, vault: Vault
) -> None:
    kept = make_login(RESOURCE, issuer="https://elsewhere.example", expires_at=issuer.at(-5))
    await vault.put(kept)
    login = await broker.current("local", "", RESOURCE)
    assert login is not None
    assert await fresh(broker, login.key) == "access 1"
    assert issuer.asked == [kept]
    assert issuer.asked[0].token_endpoint == "https://elsewhere.example/token"


async def test_a_token_is_renewed_before_it_runs_out_and_nobody_waits_for_that(
    broker: Broker, issuer: Issuer, clock: FakeClock
) -> None:
    login = await adopted(broker, issuer)
    clock.advance(3600 - 61)
    assert await fresh(broker, login.key) == "old access"
    assert not issuer.asked
    issuer.gate = anyio.Event()
    clock.advance(2)
    assert await fresh(broker, login.key) == "old access"
    await issuer.reached.wait()
    assert await fresh(broker, login.key) == "old access"
    issuer.gate.set()
    clock.advance(60)
    assert await fresh(broker, login.key) == "access 1"
    assert len(issuer.asked) == 1


async def test_a_short_lived_token_is_not_renewed_on_every_call(
    broker: Broker, issuer: Issuer, clock: FakeClock
) -> None:
    login = await adopted(broker, issuer, seconds=20)
    clock.advance(17)
    await fresh(broker, login.key)
    assert not issuer.asked
    clock.advance(4)
    assert await fresh(broker, login.key) == "access 1"


async def test_a_token_of_unknown_life_is_renewed_when_a_server_refuses_it(
    broker: Broker, issuer: Issuer, clock: FakeClock
) -> None:
    login = await adopted(broker, issuer, expires_at=None)
    clock.advance(1e9)
    assert await fresh(broker, login.key) == "old access"
    assert await fresh(broker, login.key, refused="old access") == "access 1"
    assert await fresh(broker, login.key, refused="old access") == "access 1"
    assert len(issuer.asked) == 1


@pytest.mark.requirement("HARD-36")
async def test_a_hundred_tasks_ask_the_issuer_once(broker: Broker, issuer: Issuer) -> None:
    login = await adopted(broker, issuer, seconds=-1)
    tokens: list[str] = []

    async def take() -> None:
        tokens.append(await fresh(broker, login.key))

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(take)
    assert tokens == ["access 1"] * 100
    assert len(issuer.asked) == 1


@pytest.mark.requirement("HARD-36")
async def test_a_cancelled_caller_does_not_lose_the_rotated_token(
    broker: Broker, issuer: Issuer, vault: Vault
) -> None:
    login = await adopted(broker, issuer, seconds=-1)
    issuer.gate = anyio.Event()
    async with anyio.create_task_group() as callers:
        callers.start_soon(fresh, broker, login.key)
        await issuer.reached.wait()
        callers.cancel_scope.cancel()
    issuer.gate.set()
    assert await fresh(broker, login.key) == "access 1"
    kept = await vault.get(login.key)
    assert kept is not None
    assert kept.token.refresh_token == "refresh 1"
    assert len(issuer.asked) == 1


@pytest.mark.requirement("HARD-36")
async def test_closing_in_the_middle_of_a_renewal_keeps_the_rotated_token(
    vault: Vault, store: AsyncStore, issuer: Issuer
) -> None:
    issuer.gate = anyio.Event()
    login = make_login(RESOURCE, expires_at=issuer.at(-1))
    await vault.put(login)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            broker = Broker(vault, store, issuer.renew, tasks, clock=issuer.clock)
            tasks.start_soon(fresh, broker, login.key)
            await issuer.reached.wait()
            tasks.cancel_scope.cancel()
            issuer.gate.set()
    kept = await vault.get(login.key)
    assert kept is not None
    assert kept.token.refresh_token == "refresh 1"


@pytest.mark.requirement("HARD-37")
async def test_a_renewal_that_takes_long_delays_no_other_login(broker: Broker, issuer: Issuer) -> None:
    slow = await adopted(broker, issuer, seconds=-1)
    fast = make_login("https://fast.example/mcp", expires_at=issuer.at(3600))
    await broker.adopt(fast)
    issuer.gate = anyio.Event()
    async with anyio.create_task_group() as callers:
        callers.start_soon(fresh, broker, slow.key)
        await issuer.reached.wait()
        assert await fresh(broker, fast.key) == "old access"
        issuer.gate.set()


@pytest.mark.requirement("HARD-35")
async def test_an_issuer_that_is_down_costs_no_token_and_is_asked_again_later(
    broker: Broker, issuer: Issuer, clock: FakeClock, vault: Vault
) -> None:
    login = await adopted(broker, issuer, seconds=-1)
    issuer.failure = IssuerUnavailable("x", "status 503")
    for _ in range(3):
        with pytest.raises(IssuerUnavailable, match=r"server `notes`.*status 503"):
            await fresh(broker, login.key)
    assert len(issuer.asked) == 1
    clock.advance(2)
    with pytest.raises(IssuerUnavailable):
        await fresh(broker, login.key)
    assert len(issuer.asked) == 2
    kept = await vault.get(login.key)
    assert kept is not None
    assert kept.token.refresh_token == "old refresh"
    clock.advance(3)
    issuer.failure = None
    assert await fresh(broker, login.key) == "access 3"


@pytest.mark.requirement("HARD-35")
async def test_while_the_issuer_is_down_a_token_with_time_left_is_used(
    broker: Broker, issuer: Issuer, clock: FakeClock
) -> None:
    login = await adopted(broker, issuer, seconds=3600)
    issuer.failure = IssuerUnavailable("x", "status 503")
    clock.advance(3600 - 30)
    for _ in range(3):
        assert await fresh(broker, login.key) == "old access"
        await issuer.reached.wait()
    assert len(issuer.asked) == 1
    with pytest.raises(IssuerUnavailable):
        await fresh(broker, login.key, refused="old access")


@pytest.mark.requirement("HARD-35")
async def test_an_issuer_that_never_answers_is_given_up(
    broker: Broker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.auth.broker.RENEWAL_SECONDS", 0.01)
    login = await adopted(broker, issuer, seconds=-1)
    issuer.gate = anyio.Event()
    with pytest.raises(IssuerUnavailable, match="did not answer in time"):
        await fresh(broker, login.key)


@pytest.mark.requirement("HARD-35")
async def test_a_login_that_the_issuer_ends_needs_a_person_and_keeps_its_client(
    broker: Broker, issuer: Issuer, vault: Vault
) -> None:
    client = OAuthClient(
        client_id="ours", client_secret="s3cret", auth="client_secret_post", origin="registered"
    )
    login = replace(make_login(RESOURCE, expires_at=issuer.at(-1), scope="read"), client=client)
    await broker.adopt(login)
    issuer.failure = TokenRefused("x", "invalid_grant")
    for _ in range(2):
        with pytest.raises(AuthRequired) as caught:
            await fresh(broker, login.key)
        assert caught.value.hint == "run `fairlead login notes`"
    assert len(issuer.asked) == 1
    assert await broker.current("local", "", RESOURCE) is None
    previous = await broker.previous("local", "", RESOURCE)
    assert (
        previous == await vault.get(login.key) == replace(login, token=Token(access_token="", scope="read"))
    )
    assert previous is not None
    assert previous.is_over


async def test_a_login_that_cannot_be_renewed_is_used_until_it_runs_out(
    broker: Broker, issuer: Issuer, clock: FakeClock
) -> None:
    login = await adopted(broker, issuer, seconds=3600)
    issuer.failure = TokenRefused("x", "there is no refresh token")
    clock.advance(3600 - 30)
    assert await fresh(broker, login.key) == "old access"
    await issuer.reached.wait()
    assert await fresh(broker, login.key) == "old access"
    clock.advance(31)
    with pytest.raises(AuthRequired):
        await fresh(broker, login.key)


async def test_a_refused_token_that_cannot_be_renewed_needs_a_person_at_once(
    broker: Broker, issuer: Issuer, clock: FakeClock
) -> None:
    login = await adopted(broker, issuer, seconds=3600)
    issuer.failure = TokenRefused("x", "there is no refresh token")
    issuer.gate = anyio.Event()
    clock.advance(3600 - 30)
    assert await fresh(broker, login.key) == "old access"
    await issuer.reached.wait()
    issuer.gate.set()
    with pytest.raises(AuthRequired):
        await fresh(broker, login.key, refused="old access")


async def test_a_client_that_the_issuer_does_not_know_any_more_costs_no_token(
    broker: Broker, issuer: Issuer, vault: Vault
) -> None:
    login = await adopted(broker, issuer, seconds=-1)
    issuer.failure = LoginFailed("x", "invalid_client", hint="check `oauth.client_id`")
    for _ in range(2):
        with pytest.raises(LoginFailed, match=r"server `notes`.*invalid_client") as caught:
            await fresh(broker, login.key)
        assert caught.value.hint == "check `oauth.client_id`"
    assert len(issuer.asked) == 1
    kept = await vault.get(login.key)
    assert kept is not None
    assert not kept.is_over


async def test_what_the_issuer_does_not_repeat_is_kept(broker: Broker, issuer: Issuer) -> None:
    login = await adopted(broker, issuer, seconds=-1, scope="read write")
    issuer.answer = {"refresh_token": None}
    renewed = await broker.fresh(login.key, server_id="notes")
    assert (renewed.token.refresh_token, renewed.token.scope) == ("old refresh", "read write")
    issuer.answer = {"scope": "read"}
    renewed = await broker.fresh(login.key, server_id="notes", refused="access 1")
    assert (renewed.token.refresh_token, renewed.token.scope) == ("refresh 2", "read")


async def test_a_token_that_another_process_renewed_is_adopted(
    broker: Broker, issuer: Issuer, clock: FakeClock, folder: Path, store: AsyncStore
) -> None:
    login = await adopted(broker, issuer, seconds=3600)
    async with anyio.create_task_group() as tasks:
        other = another_process(folder, store, issuer, tasks)
        assert await fresh(other, login.key, refused="old access") == "access 1"
        assert await fresh(broker, login.key, refused="old access") == "access 1"
    assert len(issuer.asked) == 1


async def test_a_login_and_a_logout_elsewhere_are_noticed_within_a_second(
    broker: Broker, issuer: Issuer, clock: FakeClock, folder: Path, store: AsyncStore
) -> None:
    assert await broker.current("local", "", RESOURCE) is None
    async with anyio.create_task_group() as tasks:
        other = another_process(folder, store, issuer, tasks)
        login = await adopted(other, issuer)
        assert await broker.current("local", "", RESOURCE) is None
        clock.advance(1)
        assert (await broker.current("local", "", RESOURCE)) is not None
        await other.forget(login.key)
        clock.advance(1)
        assert await broker.current("local", "", RESOURCE) is None
        with pytest.raises(AuthRequired):
            await fresh(broker, login.key)


async def test_who_logged_out_elsewhere_is_not_renewed(
    broker: Broker, issuer: Issuer, folder: Path, store: AsyncStore
) -> None:
    login = await adopted(broker, issuer, seconds=-1)
    async with anyio.create_task_group() as tasks:
        await another_process(folder, store, issuer, tasks).forget(login.key)
    with pytest.raises(AuthRequired):
        await fresh(broker, login.key)
    assert not issuer.asked


async def test_who_logged_out_while_a_token_is_renewed_stays_logged_out(
    broker: Broker, issuer: Issuer, vault: Vault
) -> None:
    login = await adopted(broker, issuer, seconds=-1)
    issuer.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fresh, broker, login.key)
        await issuer.reached.wait()
        tasks.start_soon(broker.forget, login.key)
        await anyio.wait_all_tasks_blocked()
        issuer.gate.set()
    assert await vault.get(login.key) is None
    assert await broker.current("local", "", RESOURCE) is None


@pytest.mark.requirement("HARD-38")
async def test_a_login_with_another_issuer_takes_the_place_of_the_old_one(
    broker: Broker, issuer: Issuer
) -> None:
    old = await adopted(broker, issuer)
    new = make_login(RESOURCE, issuer="https://new.example", expires_at=issuer.at(3600), issued_at=1)
    await broker.adopt(new)
    assert await broker.logins("local") == [new]
    assert await broker.current("local", "", RESOURCE) == new
    with pytest.raises(AuthRequired):
        await fresh(broker, old.key)


@pytest.mark.requirement("NEED-29")
async def test_nobody_gets_the_login_of_another_principal_or_account(broker: Broker, issuer: Issuer) -> None:
    await adopted(broker, issuer)
    work = replace(make_login(RESOURCE, access_token="work", issued_at=1), account="work")
    await broker.adopt(work)
    assert await broker.current("somebody", "", RESOURCE) is None
    assert await broker.logins("somebody") == []
    assert await broker.current("local", "work", RESOURCE) == work
    assert len(await broker.logins("local")) == 2


async def test_a_fault_of_ours_reaches_those_who_wait_and_ends_nothing_else(
    broker: Broker, issuer: Issuer, clock: FakeClock
) -> None:
    login = await adopted(broker, issuer, seconds=-1)
    issuer.failure = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await fresh(broker, login.key)
    clock.advance(2)
    issuer.failure = None
    assert await fresh(broker, login.key) == "access 2"


@pytest.mark.requirement("HARD-9")
async def test_on_a_full_disk_tokens_are_renewed_and_logins_made_in_memory(
    broker: Broker, issuer: Issuer, vault: Vault
) -> None:
    old = await adopted(broker, issuer, seconds=-1)
    new = make_login(RESOURCE, issuer="https://new.example", expires_at=issuer.at(3600), issued_at=1)
    with full_disk():
        assert await fresh(broker, old.key) == "access 1"
        issuer.clock.advance(10)
        assert await fresh(broker, old.key) == "access 1"
        await broker.adopt(new)
        issuer.clock.advance(10)
        assert await broker.current("local", "", RESOURCE) == new


@pytest.mark.requirement("HARD-9")
async def test_without_any_place_to_write_to_there_is_the_memory(issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    path = tmp_path / "file" / "state" / FILE_NAME
    vault = Vault(path, place="file", warn=lambda trouble: warnings.append(str(trouble)))
    async with anyio.create_task_group() as tasks:
        broker = Broker(vault, None, issuer.renew, tasks, clock=issuer.clock)
        login = await adopted(broker, issuer, seconds=-1)
        assert await fresh(broker, login.key) == "access 1"
        issuer.clock.advance(10)
        assert await fresh(broker, login.key) == "access 1"
        assert (await broker.current("local", "", RESOURCE)) is not None
    assert "kept in memory only" in warnings[0]


class SuspendedStore:
    """The store of a machine that slept for longer than any lease."""

    @contextlib.asynccontextmanager
    async def lock(self, name: str, **rest: Any) -> AsyncGenerator[None]:
        with anyio.CancelScope() as block:
            block.cancel()
            yield
        raise LockLost("the lease ran out")


async def test_a_token_that_came_while_the_machine_slept_is_kept(issuer: Issuer, vault: Vault) -> None:
    login = make_login(RESOURCE, expires_at=issuer.at(-1))
    await vault.put(login)
    suspended: Any = SuspendedStore()
    async with anyio.create_task_group() as tasks:
        broker = Broker(vault, suspended, issuer.renew, tasks, clock=issuer.clock)
        assert await fresh(broker, login.key) == "access 1"
    kept = await vault.get(login.key)
    assert kept is not None
    assert kept.token.refresh_token == "refresh 1"


async def test_a_login_that_others_keep_locked_is_not_waited_for_for_ever(
    broker: Broker, issuer: Issuer, store: AsyncStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = await adopted(broker, issuer, seconds=-1)
    issuer.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        other = another_process(folder, store, issuer, tasks)
        tasks.start_soon(fresh, other, login.key)
        await issuer.reached.wait()
        monkeypatch.setattr("fairlead.auth.broker.RENEWAL_SECONDS", 0.01)
        broker.lease_seconds = 0.01
        with pytest.raises(IssuerUnavailable, match="cannot be renewed: lock"):
            await fresh(broker, login.key)
        await adopted(broker, issuer, access_token="of a new login")
        assert await fresh(broker, login.key) == "of a new login"
        issuer.gate.set()


@pytest.mark.requirement("HARD-10")
async def test_no_token_is_in_the_log(
    broker: Broker, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    login = await adopted(broker, issuer, seconds=-1, access_token="SECRET", refresh_token="SECRET")
    issuer.failure = IssuerUnavailable("x", "status 503")
    with pytest.raises(IssuerUnavailable):
        await fresh(broker, login.key)
    issuer.clock.advance(2)
    issuer.failure = TokenRefused("x", "invalid_grant")
    with pytest.raises(AuthRequired):
        await fresh(broker, login.key)
    assert "a login is over" in caplog.text
    assert not [record for record in caplog.records if "SECRET" in str(record.__dict__)]


async def test_a_logout_in_another_process_is_one_here(broker: Broker, issuer: Issuer, folder: Path) -> None:
    login = await adopted(broker, issuer)
    await anyio.run_process(refreshing_process.command("log_out", folder, RESOURCE), stderr=subprocess.STDOUT)
    issuer.clock.advance(1)
    with pytest.raises(AuthRequired):
        await fresh(broker, login.key)
