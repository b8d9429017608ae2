"""Two gateways on two machines with one Redis: what one knows the other knows; Redis tells no one else."""

import base64
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import pytest

from fairlead.auth.store_vault import StoreVault
from fairlead.auth.tokens import Login, OAuthClient, Token
from fairlead.config.store_location import KEY_VARIABLE
from fairlead.gateway.access.rate_limit import SharedRateLimit
from fairlead.gateway.access.tokens import decide_token
from fairlead.gateway.registry import APPROVALS_PATH, DASHBOARD_LINKS_PATH
from fairlead.store.async_store import AsyncStore
from tests.cli.gateway_support import INITIALIZE, SERVER, Up, command
from tests.conftest import Machine
from tests.redis_server import KEY, RedisServer, redis_server

T = TypeVar("T")

PATIENCE = 60.0
NAME = "gateway.test:80"
"""What browsers know both replicas by: a load balancer passes the header on."""
PLANTED = "planted-5ecret-value-that-is-nowhere-else"
ANSWERED = "2.0"


@dataclass(frozen=True)
class Replica:
    """A gateway, and the machine that it runs on."""

    machine: Machine
    up: Up

    @property
    def base(self) -> str:
        return self.up.url.partition("/mcp")[0]

    def run(self, *words: str) -> str:
        """Run a command on its machine and return what it printed."""
        done = subprocess.run(
            command(*words),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=self.machine.project,
            env=self.machine.env,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def send(self, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        own = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        sent = own | {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.base}{path}", data, sent)
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(request, timeout=PATIENCE) as response:
                return response.status, dict(response.headers), response.read()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, dict(exc.headers), exc.read()

    def call(self, token: str, tool: str, **arguments: object) -> dict[str, Any]:
        """Call a tool in a session of its own."""
        opened = {"Authorization": f"Bearer {token}"}
        _, headers, _ = self.send("/mcp", INITIALIZE, **opened)
        session = {**opened, "Mcp_Session_Id": headers["mcp-session-id"]}
        self.send("/mcp", {"jsonrpc": ANSWERED, "method": "notifications/initialized"}, **session)
        self.send("/mcp", {"jsonrpc": ANSWERED, "id": 1, "method": "tools/list"}, **session)
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": ANSWERED, "id": 2, "method": "tools/call", "params": params}
        status, _, body = self.send("/mcp", message, **session)
        assert status == 200, body
        text = body.decode()
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        answers = [json.loads(line) for line in lines] if lines else [json.loads(text)]
        return next(answer for answer in answers if answer.get("id") == 2)

    def approvals(self) -> list[dict[str, Any]]:
        _, _, body = self.send(APPROVALS_PATH, Authorization=f"Bearer {self.up.decide}")
        return json.loads(body)["pending"]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


@dataclass(frozen=True)
class Pair:
    """Two replicas and their Redis."""

    redis: RedisServer
    one: Replica
    other: Replica


def eventually(look: Callable[[], T]) -> T:
    """Look again until there is something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)
    return found


def new_machine(folder: Path, redis: RedisServer, **servers: object) -> Machine:
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True)
    project.mkdir()
    env = {"HOME": str(home), "USERPROFILE": str(home), "PATH": os.environ["PATH"], KEY_VARIABLE: KEY}
    env |= {"REDIS_PORT": str(redis.port), "FAIRLEAD_VAULT": "file"}
    machine = Machine(home=home, project=project, env=env)
    tools = ["echo", "ask_first", "wait"]
    script = {"tools": tools, "any_tool": True, "record": str(folder.parent / "s.record")}
    entry = {
        "command": sys.executable,
        "args": [SERVER, json.dumps(script)],
        "trust": "trusted",
        "approval": {"default": "allow", "tools": {"ask_first": "ask"}},
        "sharing": "shared",
    }
    document = {
        "store": "redis://127.0.0.1:${REDIS_PORT}/0",
        "servers": {"s": entry, **servers},
        "gateway": {"names": [NAME]},
        "audit": {"values": True},
        "defaults": {"max_result_bytes": 4096},
    }
    machine.write_user(json.dumps(document))
    return machine


@contextmanager
def replica(folder: Path, redis: RedisServer, **servers: object) -> Generator[Replica]:
    """Run a gateway on a machine of its own, with a server `s` and those that are given."""
    with running(new_machine(folder, redis, **servers)) as found:
        yield found


@contextmanager
def running(machine: Machine) -> Generator[Replica]:
    """Run the gateway of a machine."""
    process = subprocess.Popen(
        command("gateway", "--port", "0", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=machine.project,
        env=machine.env,
    )
    limit = threading.Timer(2 * PATIENCE, process.kill)  # of its start: the tests bound their own waits
    limit.start()
    try:
        assert process.stdout is not None
        said, text = None, ""
        while said is None:
            line = process.stdout.readline()
            assert line, "the gateway does not start"
            text += line
            with suppress(ValueError):
                said = json.loads(text)
        limit.cancel()
        decide = decide_token(machine.env)
        up = Up(process=process, url=said["url"], token=said["token"], said=said, decide=decide)
        yield Replica(machine=machine, up=up)
    finally:
        limit.cancel()
        process.terminate()
        process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("replicas")
    (folder / "redis").mkdir()
    with (
        redis_server(folder / "redis", "--rdbcompression", "no") as redis,
        replica(folder / "one", redis) as one,
        replica(folder / "other", redis) as other,
    ):
        yield Pair(redis=redis, one=one, other=other)


@pytest.fixture(scope="module")
def token(pair: Pair) -> str:
    """A token that was made on the first machine, of a principal that both know."""
    made: str = json.loads(pair.one.run("gateway", "token", "add", "ada", "--json"))["token"]
    eventually(lambda: pair.other.send("/mcp", INITIALIZE, Authorization=f"Bearer {made}")[0] == 200)
    return made


def test_a_token_made_on_one_machine_opens_the_other_until_it_is_revoked(pair: Pair) -> None:
    made: str = json.loads(pair.one.run("gateway", "token", "add", "guest", "--json"))["token"]
    opened = {"Authorization": f"Bearer {made}"}
    assert pair.other.send("/mcp", INITIALIZE, **opened)[0] == 200, "at once, at any replica"
    assert "guest" in pair.other.run("gateway", "token", "list", "--json")
    pair.other.run("gateway", "token", "remove", "guest")
    eventually(lambda: pair.one.send("/mcp", INITIALIZE, **opened)[0] == 401)


def test_a_call_that_waits_at_one_is_answered_at_the_other_and_the_answer_holds_for_both(
    pair: Pair, token: str
) -> None:
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(pair.one.call(token, "s_ask_first", text=PLANTED)), daemon=True
    )
    waiting.start()
    (call,) = eventually(pair.other.approvals)
    assert call["arguments"] == {"text": PLANTED}
    assert call["principal"] == "token:ada"
    status, _, body = pair.other.send(
        APPROVALS_PATH, {"id": call["id"], "answer": "always"}, Authorization=f"Bearer {pair.other.up.decide}"
    )
    assert (status, json.loads(body)) == (200, {"answered": True})
    waiting.join(PATIENCE)
    assert "error" not in answers[0], answers
    # Remembered for good: not asked at the other either.
    assert "error" not in pair.other.call(token, "s_ask_first", text="again")
    assert pair.one.approvals() == pair.other.approvals() == []
    for each in (pair.one, pair.other):
        remembered = each.run("approvals", "list", "--json")
        assert "ask_first" in remembered


def test_an_approval_is_given_once_however_many_answer(pair: Pair, token: str) -> None:
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(pair.one.call(token, "s_ask_first", text="once", more=1)), daemon=True
    )
    pair.one.run("approvals", "forget", "s", "--json")
    waiting.start()
    (call,) = eventually(pair.other.approvals)
    given: list[bool] = []

    def answer(at: Replica, word: str) -> None:
        reply = {"id": call["id"], "answer": word}
        _, _, body = at.send(APPROVALS_PATH, reply, Authorization=f"Bearer {at.up.decide}")
        given.append(json.loads(body)["answered"])

    threads = [
        threading.Thread(target=answer, args=(at, word))
        for at, word in ((pair.one, "once"), (pair.other, "no"), (pair.other, "once"))
    ]
    for thread in threads:
        thread.start()
    for thread in (*threads, waiting):
        thread.join(PATIENCE)
    assert sorted(given) == [False, False, True]
    assert len(answers) == 1


def test_what_one_recorded_and_saved_the_other_shows(pair: Pair, token: str) -> None:
    pair.one.call(token, "s_echo", text="recorded at one")
    records = eventually(lambda: "recorded at one" in pair.other.run("audit", "--json"))
    assert records
    listed = pair.other.run("tools", "s", "--json")
    assert "ask_first" in listed
    assert "127.0.0.1" in pair.other.run("doctor", "--offline", "--json")


def test_an_artifact_kept_at_one_is_read_at_the_other(pair: Pair) -> None:
    assert pair.one.up.token is not None
    answer = pair.one.call(pair.one.up.token, "s_echo", text=PLANTED * 2000)
    assert "artifact://" in json.dumps(answer), answer
    kept = json.loads(pair.other.run("artifacts", "list", "--json"))["artifacts"]
    assert kept[0]["server"] == "s"
    assert PLANTED in pair.other.run("artifacts", "show", kept[0]["handle"])


def _add_boss(pair: Pair) -> dict[str, str]:
    """The header of one who may do everything."""
    words = (
        "gateway",
        "token",
        "add",
        f"boss-{uuid4().hex}",
        "--scope",
        "decide",
        "--scope",
        "admin",
        "--json",
    )
    boss = {"Authorization": f"Bearer {json.loads(pair.one.run(*words))['token']}"}
    for each in (pair.one, pair.other):  # a command made it, not one of the two
        eventually(lambda each=each: each.send(APPROVALS_PATH, **boss)[0] == 200)
    return boss


def _login_code(at: Replica, boss: dict[str, str]) -> str:
    _, _, body = at.send(DASHBOARD_LINKS_PATH, {}, **boss)
    code: str = json.loads(body)["links"][0].partition("code=")[2]
    return code


def test_a_dashboard_session_begun_at_one_goes_on_at_the_other_and_ends_at_both(pair: Pair) -> None:
    boss = _add_boss(pair)
    code = _login_code(pair.one, boss)
    status, headers, _ = pair.other.send(f"/login?code={code}", Host=NAME)
    assert status == 303, headers
    assert pair.one.send(f"/login?code={code}", Host=NAME)[0] != 303  # once, wherever
    cookie, place = headers["set-cookie"].partition(";")[0], headers["location"].rstrip("/")
    session = {"Host": NAME, "Cookie": cookie}
    status, _, page = pair.one.send(f"{place}/", **session)
    assert status == 200
    form_token = re.search(rb'name="form_token" value="([^"]+)"', page)
    assert form_token is not None
    form = b"form_token=" + form_token[1]
    sent = {**session, "Origin": f"http://{NAME}", "Content_Type": "application/x-www-form-urlencoded"}
    assert pair.other.send(f"{place}/logout", form, **sent)[0] == 303
    assert pair.one.send(f"{place}/", **session)[0] != 200


@pytest.mark.blocks_loop
async def test_both_see_a_login_and_a_dump_of_redis_has_nothing_of_it(pair: Pair, token: str) -> None:
    secrets = {name: f"{PLANTED}-{name}" for name in ("access", "refresh", "client", "key")}
    login = Login(
        principal="local",
        account="",
        issuer="https://issuer.test",
        resource="https://mcp.test/mcp",
        token_endpoint="https://issuer.test/token",
        client=OAuthClient(client_id="me", client_secret=secrets["client"]),
        token=Token(access_token=secrets["access"], refresh_token=secrets["refresh"]),
        dpop_key=secrets["key"],
    )
    async with AsyncStore.open(pair.redis.location) as store:
        await StoreVault(store).put(login)
        found = await StoreVault(store).find("local", "", "https://mcp.test/mcp")
        assert found == login
    for each in (pair.one, pair.other):
        assert "mcp.test" in each.run("auth", "list", "--json")
    pair.one.call(token, "s_echo", text=PLANTED, note="just before the dump")
    eventually(lambda: "just before the dump" in pair.one.run("audit", "--json"))
    # A dashboard's cookie, a code that was not used yet, and the session of a client.
    boss = _add_boss(pair)
    _, headers, _ = pair.one.send(f"/login?code={_login_code(pair.one, boss)}", Host=NAME)
    cookie = headers["set-cookie"].partition(";")[0].partition("=")[2]
    code = _login_code(pair.one, boss)
    _, headers, _ = pair.other.send("/mcp", INITIALIZE, Authorization=f"Bearer {token}")
    session = headers["mcp-session-id"]
    dump = _dump(pair.redis)
    assert b"fairlead:value:logins:" in dump
    assert b"fairlead:log:audit" in dump
    parts = [dump, *_inflated(dump)]
    bearer = boss["Authorization"].removeprefix("Bearer ")
    for secret in (PLANTED, token, KEY, bearer, cookie, code, session):
        assert len(secret) > 12
        assert not _holds(parts, secret)


def test_a_planted_value_is_found_in_a_dump_however_it_is_encoded() -> None:
    secret = b"fl_Ab+/~" + PLANTED.encode()
    text = secret.decode()
    encoded = [
        secret,
        secret[::-1],
        secret.hex().encode(),
        text.encode("utf-16-le"),
        *(base64.b64encode(b"12345"[:offset] + secret + b"end") for offset in range(5)),
        *(base64.b32encode(b"12345"[:offset] + secret + b"end") for offset in range(5)),
        base64.b32encode(secret).lower(),
        quote(text, safe="").encode(),
        "".join(f"%{byte:02x}" for byte in secret).encode(),
        zlib.compress(b"x" * 100 + secret),
        zlib.compress(base64.b64encode(secret), 1),
    ]
    for each in encoded:
        dump = b"\x00before" + each + b"after"
        assert _holds([dump, *_inflated(dump)], text), each
    assert not _holds([b"another"], text)


def _dump(redis: RedisServer) -> bytes:
    assert redis.run("SAVE").startswith(b"+OK")
    return b"".join(path.read_bytes() for path in redis.folder.rglob("*") if path.is_file())


def _inflated(dump: bytes) -> list[bytes]:
    """What is compressed in it, wherever that may begin."""
    found: list[bytes] = []
    for start in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", dump):
        unpack = zlib.decompressobj()
        text = b""
        with suppress(zlib.error):
            for first in range(start.start(), len(dump), 256):  # by parts: what is damaged has a beginning
                text += unpack.decompress(dump[first : first + 256])
                if unpack.eof:
                    break
        found.append(text)
    return found


def _holds(parts: Sequence[bytes], text: str) -> bool:
    encodings = [*_encodings(text)]
    return any(encoded in part for part in parts for encoded in encodings)


def _encodings(text: str) -> Iterator[bytes]:
    plain = text.encode()
    yield plain
    yield plain[::-1]
    yield plain.hex().encode()
    yield plain.hex().upper().encode()
    yield text.encode("utf-16-le")
    yield quote(text, safe="").encode()
    for form in ("%{:02x}", "%{:02X}"):
        yield "".join(form.format(byte) for byte in plain).encode()
    for offset in range(3):  # wherever it stands in what was encoded
        encoded = base64.b64encode(b"x" * offset + plain)
        yield encoded[4:-4]
        yield encoded[4:-4].translate(bytes.maketrans(b"+/", b"-_"))
    for offset in range(5):
        encoded = base64.b32encode(b"x" * offset + plain)
        yield encoded[8:-8]
        yield encoded[8:-8].lower()


async def test_a_rate_limit_counts_over_all_replicas(pair: Pair) -> None:
    async with AsyncStore.open(pair.redis.location) as first, AsyncStore.open(pair.redis.location) as second:
        limits = [SharedRateLimit(100, store) for store in (first, second)]
        waits = [await limits[number % 2].take("someone") for number in range(150)]
        admitted = [wait for wait in waits if wait is None]
        # As many as the bucket has, what it refilled meanwhile, and no more.
        assert 100 <= len(admitted) < 130
        assert all(wait >= 1 for wait in waits if wait is not None)


def test_without_redis_what_needs_it_is_refused_and_goes_on_when_it_is_back(pair: Pair, token: str) -> None:
    pair.one.call(token, "s_echo", text="before")
    pair.redis.kill()
    assert "error" not in pair.one.call(token, "s_echo", text="meanwhile")
    refused = json.dumps(pair.one.call(token, "s_ask_first", text="asks", third=True))
    assert "does not answer" in refused
    failed = subprocess.run(
        command("audit"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=pair.one.machine.project,
        env=pair.one.machine.env,
    )
    assert failed.returncode != 0
    assert "goes on by itself" in failed.stderr
    pair.redis.start()
    eventually(lambda: "meanwhile" in pair.other.run("audit", "--json"))
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(pair.one.call(token, "s_ask_first", text="after")), daemon=True
    )
    waiting.start()
    (call,) = eventually(pair.other.approvals)
    eventually(lambda: _answered(pair.other, call["id"]))
    waiting.join(PATIENCE)
    assert "error" not in answers[0], answers


def _answered(at: Replica, call_id: str) -> bool:
    reply = {"id": call_id, "answer": "once"}
    _, _, body = at.send(APPROVALS_PATH, reply, Authorization=f"Bearer {at.up.decide}")
    return json.loads(body)["answered"]


def test_an_answer_for_a_replica_that_was_killed_is_refused_and_not_remembered(
    pair: Pair, tmp_path: Path
) -> None:
    name = f"eve-{uuid4().hex}"
    token = json.loads(pair.one.run("gateway", "token", "add", name, "--json"))["token"]
    before = pair.other.run("audit", "--json").count("answer approval")
    with replica(tmp_path, pair.redis) as third:

        def call_there() -> None:
            with suppress(OSError, HTTPException):  # it ends with the replica
                third.call(token, "s_ask_first", text="lost")

        waiting = threading.Thread(target=call_there, daemon=True)
        waiting.start()
        (call,) = eventually(lambda: [each for each in pair.other.approvals() if name in each["principal"]])
        third.up.process.kill()
        third.up.process.wait(PATIENCE)
        _, _, body = pair.other.send(
            APPROVALS_PATH,
            {"id": call["id"], "answer": "always"},
            Authorization=f"Bearer {pair.other.up.decide}",
        )
        said = json.loads(body)
        assert said["answered"] is False
        assert "did not take the answer" in said["error"]
        told = subprocess.run(
            command("approvals", "answer", call["id"], "always"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=pair.other.machine.project,
            env=pair.other.machine.env,
        )
        assert told.returncode != 0
        assert "did not take the answer" in told.stderr
        waiting.join(PATIENCE)
    assert pair.other.run("audit", "--json").count("answer approval") == before
    remembered = json.loads(pair.other.run("approvals", "list", "--json"))["approvals"]
    assert name not in json.dumps(remembered)
