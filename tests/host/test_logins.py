"""Logging in through a host: asked for once, kept, renewed, and never in the way of anybody else."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.auth.tokens import Login
from fairlead.errors import (
    AuthRequired,
    ClientRegistrationRequired,
    ConnectFailed,
    FairleadError,
    UnknownTool,
)
from fairlead.events import BrowserOpenFailed
from fairlead.host.host import Host
from fairlead.host.operator import UNATTENDED, Callbacks, Operator, UrlAnswer, UrlRequest
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.conftest import Machine
from tests.host.support import SECONDS


class Person:
    """Somebody at a browser: agrees to login pages, or not, and clicks through them."""

    def __init__(self, account: str = "ada", *, answer: UrlAnswer = "accept") -> None:
        self.clicking = Clicking(account)
        self.answer: UrlAnswer = answer
        self.questions: list[UrlRequest] = []
        self.operator = Callbacks(on_url=self.agree, on_open_url=self.open)

    async def agree(self, question: UrlRequest) -> UrlAnswer:
        self.questions.append(question)
        return self.answer

    async def open(self, url: str) -> bool:
        back = await self.clicking.visit(url)
        async with aiohttp.ClientSession() as browser, browser.get(back) as page:
            assert page.status == 200
        return True


@asynccontextmanager
async def hosting(
    machine: Machine,
    operator: Operator = UNATTENDED,
    providers: Mapping[str, Any] | None = None,
    **servers: Any,
) -> AsyncGenerator[Host]:
    entries = {name: {"trust": "trusted", "approval": "allow", **entry} for name, entry in servers.items()}
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides={"servers": entries},
            env={**machine.env, "FAIRLEAD_VAULT": "file"},
            cwd=machine.project,
            operator=operator,
            auth_providers=providers,
        ) as host:
            yield host


async def test_unattended_it_says_that_a_login_is_needed(machine: Machine) -> None:
    with authorization_server() as server:
        async with hosting(machine, x={"url": server.mcp_url}) as host:
            with pytest.raises(AuthRequired) as caught:
                await host.call("x", "whoami")
            (status,) = host.status()
    assert caught.value.hint == "run `fairlead login x`"
    assert status.state == "auth_required"
    assert server.count("/register") == server.count("/token") == 0


async def test_the_first_call_asks_a_person_to_log_in_and_then_goes_on(machine: Machine) -> None:
    person = Person()
    with authorization_server() as server:
        async with hosting(machine, person.operator, x={"url": server.mcp_url}) as host:
            assert (await host.call("x", "whoami")).text == "ada"
            assert (await host.call("x", "whoami")).text == "ada"
            await host.list_now("x")
            assert host.status()[0].state == "ready"
        (question,) = person.questions
        assert question.url.url.startswith(server.url)
        async with hosting(machine, x={"url": server.mcp_url}) as host:
            assert (await host.call("x", "whoami")).text == "ada"
    assert len(person.clicking.visited) == 1


@pytest.mark.parametrize("fails", ["returns", "raises"])
async def test_a_login_page_that_no_browser_was_opened_for_is_an_event_and_the_login_goes_on(
    machine: Machine, fails: str
) -> None:
    person = Person()

    async def open_elsewhere(url: str) -> bool:
        await person.open(url)
        if fails == "raises":
            raise OSError("no display")
        return False

    operator = Callbacks(on_url=person.agree, on_open_url=open_elsewhere)
    with authorization_server() as server:
        async with (
            hosting(machine, operator, x={"url": server.mcp_url}) as host,
            host.events(calls=False) as events,
        ):
            assert (await host.call("x", "whoami")).text == "ada"
            failed = await anext(event async for event in events if isinstance(event, BrowserOpenFailed))
    assert failed.server_id == "x"
    assert failed.url.startswith(server.url)
    assert "?" not in failed.url


async def test_many_calls_at_once_are_one_login(machine: Machine) -> None:
    person = Person()
    with authorization_server() as server:
        async with (
            hosting(machine, person.operator, x={"url": server.mcp_url}) as host,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(6):
                tasks.start_soon(host.call, "x", "whoami")
    assert len(person.questions) == 1
    assert server.count("/token") == 1


async def test_who_says_no_is_not_asked_again_for_every_call(machine: Machine) -> None:
    person = Person(answer="decline")
    with authorization_server() as server:
        async with hosting(machine, person.operator, x={"url": server.mcp_url}) as host:
            for _ in range(3):
                with pytest.raises(FairleadError):
                    await host.call("x", "whoami")
    assert len(person.questions) == 1
    assert person.clicking.visited == []


@pytest.mark.requirement("HARD-33")
async def test_after_a_restart_an_expired_token_is_renewed_silently(machine: Machine) -> None:
    with authorization_server(expires_in=1) as server:
        async with hosting(machine, Person().operator, x={"url": server.mcp_url}) as host:
            await host.call("x", "whoami")
        server.expire_access_tokens()
        async with hosting(machine, x={"url": server.mcp_url}) as host:
            assert (await host.call("x", "whoami")).text == "ada"
        assert server.count("/token", grant_type="refresh_token") >= 1
        assert server.reused == 0


async def test_a_token_that_a_server_refuses_is_renewed_and_the_call_sent_again(machine: Machine) -> None:
    with authorization_server() as server:
        async with hosting(machine, Person().operator, x={"url": server.mcp_url}) as host:
            await host.call("x", "whoami")
            server.expire_access_tokens()
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(host.call, "x", "whoami")
        assert server.count("/token", grant_type="refresh_token") == 1


@pytest.mark.requirement("HARD-35")
async def test_an_issuer_that_is_down_takes_no_login_away(machine: Machine) -> None:
    with authorization_server() as server:
        async with hosting(machine, Person().operator, x={"url": server.mcp_url}) as host:
            await host.call("x", "whoami")
            server.expire_access_tokens()
            server.behaviour.token_status = 503
            with pytest.raises(FairleadError) as caught:
                await host.call("x", "whoami")
            assert not isinstance(caught.value, AuthRequired)
            server.behaviour.token_status = 200
        async with hosting(machine, x={"url": server.mcp_url}) as host:
            assert (await host.call("x", "whoami")).text == "ada"


async def test_a_refresh_token_that_is_refused_ends_in_a_login(machine: Machine) -> None:
    person = Person()
    with authorization_server() as server:
        async with hosting(machine, person.operator, x={"url": server.mcp_url}) as host:
            await host.call("x", "whoami")
            server.expire_access_tokens()
            server.refresh_tokens.clear()
            assert (await host.call("x", "whoami")).text == "ada"
    assert len(person.questions) == 2
    assert server.count("/register") == 1  # the client is still known


@pytest.mark.requirement("NEED-16")
async def test_a_tool_that_needs_more_leads_to_one_more_consent(machine: Machine) -> None:
    person = Person()
    with authorization_server(scope="mcp:read") as server:
        async with hosting(machine, person.operator, x={"url": server.mcp_url}) as host:
            assert (await host.call("x", "whoami")).text == "ada mcp:read"
            granted = await host.call("x", "administer")
            assert (await host.call("x", "administer")).text == granted.text
    assert set(granted.text.split()) == {"ada", "mcp:read", "mcp:admin"}
    assert len(person.questions) == 2


@pytest.mark.requirement("HARD-39")
async def test_a_server_that_never_has_enough_is_given_up_on(machine: Machine) -> None:
    person = Person()
    with authorization_server() as server:
        async with hosting(machine, person.operator, x={"url": server.mcp_url}) as host:
            await host.call("x", "whoami")
            server.behaviour.insatiable = True
            with pytest.raises(AuthRequired, match="more OAuth scopes"):
                await host.call("x", "whoami")
    assert len(person.questions) == 1 + 2


@pytest.mark.requirement("HARD-39")
async def test_a_server_that_never_has_enough_is_given_up_on_though_rules_change_meanwhile(
    machine: Machine,
) -> None:
    """The limit is for one call, however often it is decided again."""
    person = Person()

    async def agree(question: UrlRequest) -> UrlAnswer:
        if person.questions:
            rules = [{"action": "deny", "tool": f"other_{len(person.questions)}"}]
            await host.reload(machine.load(overrides={"servers": entries, "policy": {"rules": rules}}))
        return await person.agree(question)

    with authorization_server() as server:
        entries = {"x": {"url": server.mcp_url, "trust": "trusted", "approval": "allow"}}
        operator = Callbacks(on_url=agree, on_open_url=person.open)
        async with hosting(machine, operator, x={"url": server.mcp_url}) as host:
            await host.call("x", "whoami")
            server.behaviour.insatiable = True
            with pytest.raises(AuthRequired, match="more OAuth scopes"):
                await host.call("x", "whoami")
    assert len(person.questions) == 1 + 2


@pytest.mark.requirement("NEED-16")
async def test_a_server_that_wants_more_before_it_lets_anybody_in_leads_to_one_more_consent(
    machine: Machine,
) -> None:
    person = Person()
    with authorization_server(scope="mcp:read") as server:
        entry = {"url": server.mcp_url, "oauth": {"scope": "too:little"}}
        async with hosting(machine, person.operator, x=entry) as host:
            granted = await host.call("x", "whoami")
    assert "mcp:read" in granted.text.split()
    assert len(person.questions) == 2


@pytest.mark.requirement("HARD-39")
async def test_a_server_that_lets_nobody_in_with_any_rights_is_given_up_on(machine: Machine) -> None:
    person = Person()
    with authorization_server() as server:
        server.behaviour.insatiable = True
        async with hosting(machine, person.operator, x={"url": server.mcp_url}) as host:
            with pytest.raises(AuthRequired, match="more OAuth scopes"):
                await host.call("x", "whoami")
    assert len(person.questions) == 1 + 2


@pytest.mark.requirement("NEED-15")
async def test_two_accounts_on_one_url_are_two_identities(machine: Machine) -> None:
    with authorization_server() as server:
        entries: dict[str, Any] = {
            name: {"url": server.mcp_url, "account": name} for name in ("work", "personal")
        }
        for name, account in (("work", "ada"), ("personal", "grace")):
            async with hosting(machine, Person(account).operator, **entries) as host:
                await host.call(name, "whoami")
        async with hosting(machine, **entries) as host:
            assert (await host.call("work", "whoami")).text == "ada"
            assert (await host.call("personal", "whoami")).text == "grace"


@pytest.mark.requirement("NEED-17")
async def test_a_machine_logs_in_by_itself_and_again_when_refused(machine: Machine) -> None:
    oauth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "hush"}
    with authorization_server(refresh_tokens=False) as server:
        server.add_client("robot", auth="client_secret_basic", client_secret="hush")
        async with hosting(machine, x={"url": server.mcp_url, "oauth": oauth}) as host:
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(host.call, "x", "whoami")
            assert (await host.call("x", "whoami")).text == "robot"
            server.expire_access_tokens()
            assert (await host.call("x", "whoami")).text == "robot"
        assert server.count("/register") == 0
        assert server.count("/token", grant_type="client_credentials") == 2


@pytest.mark.requirement("NEED-13")
async def test_a_client_that_is_known_is_not_registered(machine: Machine) -> None:
    oauth = {"client_id": "known", "client_secret": "hush", "callback_port": _free_port()}
    with authorization_server(registration=False) as server:
        server.add_client(
            "known",
            auth="client_secret_post",
            client_secret="hush",
            redirect_uris=(f"http://127.0.0.1:{oauth['callback_port']}/callback",),
        )
        server.behaviour.auth_methods = ("client_secret_post",)
        async with hosting(machine, Person().operator, x={"url": server.mcp_url, "oauth": oauth}) as host:
            assert (await host.call("x", "whoami")).text == "ada"
        assert server.count("/register") == 0


async def test_a_server_with_a_header_of_its_own_is_not_logged_in_to(machine: Machine) -> None:
    person = Person()
    with authorization_server() as server:
        entry = {"url": server.mcp_url, "headers": {"Authorization": "Bearer wrong"}}
        async with hosting(
            machine, person.operator, x=entry, y={"url": server.mcp_url, "oauth": False}
        ) as host:
            for name in ("x", "y"):
                with pytest.raises(AuthRequired):
                    await host.call(name, "whoami")
    assert person.questions == []


async def test_a_program_can_bring_its_own_way_in(machine: Machine) -> None:
    class Provider:
        def __init__(self, server: AuthorizationServer) -> None:
            self.server = server
            self.refused: list[Mapping[str, str] | None] = []

        async def headers(self, server_id: str, *, refused: Mapping[str, str] | None) -> Mapping[str, str]:
            self.refused.append(refused)
            return {"Authorization": f"Bearer {'good' if refused else 'stale'}"}

    with authorization_server() as server:
        grant = server.issue(_grant(server))
        server.access_tokens["good"] = server.access_tokens[grant["access_token"]]
        provider = Provider(server)
        entry = {"url": server.mcp_url, "auth_provider_id": "ours"}
        async with hosting(machine, providers={"ours": provider}, x=entry) as host:
            assert "ada" in (await host.call("x", "whoami")).text
        async with hosting(machine, x=entry) as host:
            with pytest.raises(ConnectFailed, match="no auth provider `ours`"):
                await host.call("x", "whoami")
    assert {"Authorization": "Bearer stale"} in provider.refused


@pytest.mark.requirement("HARD-10")
async def test_no_token_is_in_a_log_an_event_or_an_error(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    told: list[object] = []
    with authorization_server(expires_in=1) as server:
        async with (
            hosting(machine, Person().operator, x={"url": server.mcp_url}) as host,
            host.events() as events,
        ):
            await host.call("x", "whoami", {"secret": "an argument"})
            server.expire_access_tokens()
            await host.call("x", "whoami")
            server.behaviour.token_status = 503
            server.expire_access_tokens()
            with pytest.raises(FairleadError) as caught:
                await host.call("x", "whoami")
            told.append(await anext(events))
            told.append(await anext(events))
            told.append(await anext(events))
        secrets = {*server.access_tokens, *server.refresh_tokens, *server.spent, *server.codes, "an argument"}
    said = "\n".join([caplog.text, *map(repr, told), str(caught.value), repr(caught.value.__cause__)])
    assert told
    assert [secret for secret in secrets if secret in said] == []


def _free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _grant(server: AuthorizationServer) -> Any:
    from tests.auth.server_behaviour import Grant

    return Grant(account="ada", client_id="c", scope="", resource=server.mcp_url, family="f")


def test_a_login_never_shows_its_secrets() -> None:
    from fairlead.auth.tokens import OAuthClient, Token

    login = Login(
        principal="local",
        account="",
        issuer="i",
        resource="r",
        token_endpoint="t",
        client=OAuthClient(client_id="c", client_secret="hush"),
        token=Token(access_token="hush", refresh_token="hush"),
        dpop_key="hush",
    )
    assert "hush" not in f"{login!r} {login} {json.dumps(repr(login))}"


@pytest.mark.parametrize("is_attended", [True, False])
async def test_a_server_without_oauth_metadata_is_a_plain_connection_error_seed_003(
    machine: Machine, is_attended: bool
) -> None:
    person = Person()
    operator = person.operator if is_attended else UNATTENDED
    nothing: dict[str, Any] = {"resource_metadata": False, "metadata_paths": (), "login_page": False}
    with authorization_server(**nothing, registration=False) as server:
        async with hosting(machine, operator, x={"url": server.mcp_url}) as host:
            with pytest.raises(ConnectFailed) as caught:
                await host.call("x", "whoami")
            (status,) = host.status()
    assert "headers.Authorization" in (caught.value.hint or "")
    assert "login" not in (caught.value.hint or "")
    assert (status.state, status.hint) == ("error", caught.value.hint)
    assert person.questions == []


async def test_a_server_that_registers_no_clients_says_what_to_register_seed_004(machine: Machine) -> None:
    person = Person()
    with authorization_server(registration=False) as server:
        async with hosting(machine, person.operator, x={"url": server.mcp_url}) as host:
            with pytest.raises(ClientRegistrationRequired) as caught:
                await host.call("x", "whoami")
            (status,) = host.status()
        assert server.count("/token") == 0
    assert caught.value.code == "needs_client_registration"
    hint = caught.value.hint or ""
    assert "http://127.0.0.1:33418/callback" in hint
    assert "`fairlead login x --client-id ID --callback-port 33418`" in hint
    assert "`oauth.client_id`" in hint
    assert (status.state, status.hint) == ("needs_client_registration", hint)
    assert person.questions == []


async def test_a_model_that_names_a_tool_of_such_a_server_is_told_what_to_register_seed_004(
    machine: Machine,
) -> None:
    with authorization_server(registration=False) as server:
        async with hosting(machine, UNATTENDED, x={"url": server.mcp_url}) as host:
            for name in ("mcp_x_whoami", "x.whoami"):
                with pytest.raises(ClientRegistrationRequired) as caught:
                    await host.tools.call(name, {})
                assert "http://127.0.0.1:33418/callback" in (caught.value.hint or "")
            with pytest.raises(UnknownTool, match="other_tool") as unknown:
                await host.tools.call("other_tool", {})
            assert "oauth.client_id" in (unknown.value.hint or "")


async def test_a_configured_callback_port_is_the_one_to_register_seed_004(machine: Machine) -> None:
    with authorization_server(registration=False) as server:
        oauth = {"callback_port": 8765}
        async with hosting(machine, x={"url": server.mcp_url, "oauth": oauth}) as host:
            with pytest.raises(ClientRegistrationRequired, match="does not let clients") as caught:
                await host.call("x", "whoami")
    assert "http://127.0.0.1:8765/callback" in (caught.value.hint or "")


async def test_an_issuer_that_refuses_the_registration_needs_one_by_hand_seed_004(machine: Machine) -> None:
    person = Person()
    with authorization_server(registration_status=403) as server:
        async with hosting(machine, person.operator, x={"url": server.mcp_url}) as host:
            with pytest.raises(ClientRegistrationRequired):
                await host.call("x", "whoami")
            (status,) = host.status()
    assert status.state == "needs_client_registration"
    assert "oauth.client_id" in (status.hint or "")
