"""Tasks of both eras, against a server that offers them: started, polled, asked about, answered, given up."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import msgspec
import pytest

from fairlead.connection import tasks
from fairlead.connection.link import open_session
from fairlead.connection.outcomes import AnswerUnreadable, RequestExpired, RequestRejected
from fairlead.connection.peer import ClientPeer, refusal
from fairlead.connection.process.child import Command
from fairlead.connection.session import Session
from fairlead.connection.tasks import (
    RELATED_TASK,
    Task,
    TaskCancelled,
    TaskElicitation,
    abandon_task,
    cancel_task,
    finish_task,
    get_task,
    list_tasks,
    parse_created_task,
    supports_tasks,
    task_result,
    task_support,
    update_task,
    without_task,
)
from fairlead.connection.transport.dispatcher import Transport
from fairlead.connection.transport.http import HttpDispatcher
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.net.http import open_client
from fairlead.testing.watchdog import watch_loop
from tests.connection.servers import SERVERS
from tests.fixtures.tasks_http import serving_tasks

Era = Literal["2025-11-25", "2026-07-28"]

SECONDS = 30
EVERYTHING = types.ClientCapabilities(
    elicitation=types.ElicitationCapability(form=types.FormElicitationCapability()),
    extensions={tasks.EXTENSION: {}},
)

later_era_only = pytest.mark.parametrize("era", ["2026-07-28"])
older_era_only = pytest.mark.parametrize("era", ["2025-11-25"])


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


class Ada(ClientPeer):
    """Says who she is to servers of the older era, which ask by themselves."""

    @property
    def is_shared(self) -> bool:
        return False

    def __init__(self, capabilities: types.ClientCapabilities = EVERYTHING) -> None:
        self.told = capabilities

    @property
    def capabilities(self) -> types.ClientCapabilities:
        return self.told

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def sample(self, params: types.CreateMessageRequestParams) -> types.ErrorData:
        return refusal("sampling")

    async def list_roots(self) -> types.ErrorData:
        return refusal("roots")

    def handle_log(self, params: types.LoggingMessageNotificationParams) -> None:
        return

    def handle_update(self, uri: str) -> None:
        return

    def handle_completion(self, elicitation_id: str) -> None:
        return


async def name_ada(questions: Mapping[str, TaskElicitation]) -> dict[str, Any]:
    """Say so to servers of the later era, which ask when they are polled."""
    for question in questions.values():
        assert types.ElicitRequest.model_validate(question.read()).params.message.startswith("What is your")
    return {key: {"action": "accept", "content": {"name": "Ada"}} for key in questions}


class Caller:
    """A session, and what went over it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.modern = session.modern
        self.sent: list[str] = []

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> msgspec.Raw:
        self.sent.append(method)
        return await self.session.request(method, params, seconds=seconds)

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> msgspec.Raw:
        params = {"name": tool, "arguments": arguments or {}, **more}
        return await self.request("tools/call", params, seconds=SECONDS)

    async def start(self, tool: str, **arguments: Any) -> Task:
        asking: dict[str, Any] = {} if self.modern else {"task": {"ttl": 60_000}}
        task = parse_created_task(await self.call(tool, arguments, **asking))
        assert task is not None
        return task


@asynccontextmanager
async def speaking(transport: Transport, era: Era, peer: ClientPeer | None = None) -> AsyncGenerator[Caller]:
    """A session in this era."""
    with anyio.fail_after(SECONDS):
        async with open_session(
            [transport],
            probe=era == "2026-07-28",
            seconds=SECONDS,
            peer=peer or Ada(),
            log_level=None,
            on_message=lambda message: None,
        ) as session:
            assert session.version == era
            yield Caller(session)


def served(state: Path, era: Era, peer: ClientPeer | None = None) -> AbstractAsyncContextManager[Caller]:
    """A session with a process of the server, which has the tasks that are in this folder."""
    argv = (sys.executable, "-I", "-S", str(SERVERS / "tasks_server.py"), str(state / "tasks.json"))
    return speaking(lambda: StdioDispatcher(Command(argv=argv)), era, peer)


def text_of(raw: msgspec.Raw) -> str:
    return json.loads(bytes(raw))["content"][0]["text"]


async def test_a_call_that_becomes_a_task_is_followed_to_its_result(tmp_path: Path, era: Era) -> None:
    changes: list[tuple[str, str | None]] = []

    async def changed(task: Task) -> None:
        changes.append((task.status, task.message))

    async with served(tmp_path, era) as caller:
        task = await caller.start("work", text="all of it", polls=2)
        result = await finish_task(caller, task, answer=name_ada, on_change=changed)
    assert text_of(result) == "all of it"
    assert changes == [("working", "1 to go"), ("working", "0 to go"), ("completed", "over")]


async def test_a_handle_tells_how_long_it_lives_and_when_to_ask(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        task = await caller.start("work")
        later = await get_task(caller, task.id)
    assert (task.status, task.ttl_ms, task.poll_ms, task.is_over) == ("working", 60_000, 10, False)
    assert task.created_at is not None
    assert later.updated_at is not None
    assert later.id == task.id


@older_era_only
async def test_the_server_of_these_tests_speaks_the_older_era_as_the_sdk_knows_it(
    tmp_path: Path, era: Era
) -> None:
    async with served(tmp_path, era) as caller:
        created = types.CreateTaskResult.model_validate_json(
            bytes(await caller.call("greet", task={"ttl": 60_000}))
        )
        params = {"taskId": created.task.task_id}
        types.ListTasksResult.model_validate_json(bytes(await caller.request("tasks/list")))
        types.ListToolsResult.model_validate_json(bytes(await caller.request("tools/list")))
        types.CancelTaskResult.model_validate_json(bytes(await caller.request("tasks/cancel", params)))


async def test_a_tool_that_fails_in_a_task_gives_its_own_result(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        result = await finish_task(caller, await caller.start("stumble"), answer=name_ada)
    assert json.loads(bytes(result))["isError"] is True
    assert text_of(result) == "the tool failed"


async def test_an_error_in_a_task_is_the_error_of_the_call(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        task = await caller.start("crash")
        with pytest.raises(RequestRejected, match="the disk is full") as caught:
            await finish_task(caller, task, answer=name_ada)
    assert (caught.value.code, caught.value.data) == (-32603, {"free": 0})


async def test_questions_of_a_task_are_answered(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        result = await finish_task(caller, await caller.start("greet"), answer=name_ada)
    assert text_of(result) == "Hello, Ada!"
    assert ("tasks/update" in caller.sent) == caller.modern


@later_era_only
async def test_a_question_that_stays_in_sight_is_put_to_nobody_twice(tmp_path: Path, era: Era) -> None:
    asked: list[str] = []

    async def answer(questions: Mapping[str, TaskElicitation]) -> dict[str, Any]:
        asked.extend(questions)
        return await name_ada(questions)

    async with served(tmp_path, era) as caller:
        task = await caller.start("greet", questions=["name", "town"], lag=2)
        result = await finish_task(caller, task, answer=answer)
    assert text_of(result) == "Hello, Ada Ada!"
    assert asked == ["name", "town"]
    assert caller.sent.count("tasks/update") == 1


@later_era_only
async def test_a_question_answered_over_another_connection_is_put_to_nobody_again(
    tmp_path: Path, era: Era
) -> None:
    async def never(questions: Mapping[str, TaskElicitation]) -> dict[str, Any]:
        pytest.fail(f"asked again: {questions}")

    async with served(tmp_path, era) as caller:
        task = await caller.start("greet", lag=2)
        asked = (await get_task(caller, task.id)).elicitations
        await update_task(caller, task.id, await name_ada(asked))
    async with served(tmp_path, era) as caller:
        result = await finish_task(caller, task, answer=never, answered=set(asked))
    assert text_of(result) == "Hello, Ada!"


@later_era_only
async def test_a_question_before_the_task_is_a_round_of_the_call_itself(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        asked = json.loads(bytes(await caller.call("ask_first")))
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Grace"}}}
        answer = await caller.call("ask_first", inputResponses=answers, requestState=asked["requestState"])
        task = parse_created_task(answer)
        assert task is not None
        assert text_of(await finish_task(caller, task, answer=name_ada)) == "Hello, Grace!"


async def test_a_task_goes_on_over_another_connection(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        task = await caller.start("work", text="kept", polls=3)
        await get_task(caller, task.id)
    async with served(tmp_path, era) as caller:
        assert text_of(await finish_task(caller, task, answer=name_ada)) == "kept"
    async with served(tmp_path, era) as caller:
        known = await get_task(caller, task.id)
        assert text_of(await task_result(caller, known)) == "kept"


async def test_a_cancelled_task_is_over(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        task = await caller.start("endless")
        told = await cancel_task(caller, task.id)
        now = await get_task(caller, task.id)
        with pytest.raises(TaskCancelled, match="cancelled by request"):
            await finish_task(caller, task, answer=name_ada)
    assert (told is None) == caller.modern
    assert now.status == "cancelled"


async def test_a_task_that_is_abandoned_is_cancelled_though_its_caller_is_too(
    tmp_path: Path, era: Era
) -> None:
    async with served(tmp_path, era) as caller:
        task = await caller.start("endless")
        with anyio.move_on_after(0.1) as waiting:
            try:
                await finish_task(caller, task, answer=name_ada)
            finally:
                await abandon_task(caller, task.id)
        assert waiting.cancelled_caught
        assert (await get_task(caller, task.id)).status == "cancelled"


async def test_abandoning_a_task_that_is_not_there_is_no_trouble(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        await abandon_task(caller, "no such task")
        assert caller.sent[-1] == "tasks/cancel"


async def test_a_task_the_server_forgot_is_an_error(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        task = await caller.start("work", ttl_ms=0)
        with pytest.raises(RequestRejected, match="expired"):
            await finish_task(caller, task, answer=name_ada)
        with pytest.raises(RequestRejected, match="not found") as caught:
            await get_task(caller, task.id)
    assert caught.value.code == types.INVALID_PARAMS


async def test_only_the_older_era_lists_tasks(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        started = [await caller.start("work") for _ in range(5)]
        listed = await list_tasks(caller)
    assert [task.id for task in listed] == ([] if caller.modern else [task.id for task in started])


async def test_a_server_says_that_it_has_tasks_and_a_tool_of_the_older_era_how(
    tmp_path: Path, era: Era
) -> None:
    async with served(tmp_path, era) as caller:
        capabilities = caller.session.capabilities
        listed = msgspec.json.decode(await caller.request("tools/list"))["tools"]
    assert supports_tasks(capabilities, modern=caller.modern)
    assert not supports_tasks(capabilities, modern=not caller.modern)
    assert not supports_tasks(types.ServerCapabilities(), modern=caller.modern)
    said = {tool["name"]: task_support(msgspec.json.encode(tool)) for tool in listed}
    if caller.modern:
        assert set(said.values()) == {"forbidden"}
    else:
        assert (said["work"], said["long"], said["quick"]) == ("optional", "required", "forbidden")


async def test_a_tool_that_needs_a_task_is_refused_without(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era, Ada(types.ClientCapabilities())) as caller:
        with pytest.raises(RequestRejected) as caught:
            await caller.call("long")
    wanted = types.MISSING_REQUIRED_CLIENT_CAPABILITY if caller.modern else types.METHOD_NOT_FOUND
    assert caught.value.code == wanted


async def test_a_result_is_not_taken_for_a_task(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        answer = await caller.call("quick", {"text": 'a "task"'})
    assert parse_created_task(answer) is None
    assert text_of(answer) == 'a "task"'


class Deaf(Caller):
    """Does not hear the answers to some requests."""

    def __init__(self, session: Session, method: str, times: int) -> None:
        super().__init__(session)
        self.unheard = [method] * times

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> msgspec.Raw:
        answer = await super().request(method, params, seconds=seconds)
        if method in self.unheard:
            self.unheard.remove(method)
            raise RequestExpired(method, 30, "unknown")
        return answer


async def test_a_poll_without_an_answer_is_not_the_end(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        deaf = Deaf(caller.session, "tasks/get", tasks.MAX_SILENT_POLLS - 1)
        assert text_of(await finish_task(deaf, await caller.start("work"), answer=name_ada)) == "worked"


async def test_a_few_polls_in_a_row_without_an_answer_are(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        deaf = Deaf(caller.session, "tasks/get", tasks.MAX_SILENT_POLLS)
        with pytest.raises(RequestExpired):
            await finish_task(deaf, await caller.start("work"), answer=name_ada)


@older_era_only
async def test_a_result_that_was_waited_for_too_long_is_fetched_again(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        deaf = Deaf(caller.session, "tasks/result", 1)
        assert text_of(await finish_task(deaf, await caller.start("greet"), answer=name_ada)) == "Hello, Ada!"
    assert deaf.sent.count("tasks/result") == 2


@later_era_only
async def test_tasks_work_over_http_where_headers_name_the_task(tmp_path: Path, era: Era) -> None:
    with serving_tasks(tmp_path / "tasks.json") as url:
        async with (
            open_client() as client,
            speaking(lambda: HttpDispatcher(url, client), era) as caller,
        ):
            greeting = await finish_task(caller, await caller.start("greet"), answer=name_ada)
            await cancel_task(caller, (await caller.start("endless")).id)
    assert text_of(greeting) == "Hello, Ada!"


@later_era_only
async def test_a_task_that_was_over_at_once_is_asked_for_its_result(tmp_path: Path, era: Era) -> None:
    async with served(tmp_path, era) as caller:
        task = await caller.start("work", polls=0)
        over = await get_task(caller, task.id)
        assert over.status == "completed"
        handle = Task(id=task.id, status="completed")
        assert await finish_task(caller, handle, answer=name_ada) == over.result


@pytest.mark.parametrize(
    ("poll_ms", "seconds"),
    [(None, 1.0), (2_000, 2.0), (0, 0.05), (-5, 0.05), (10**12, 60.0)],
)
def test_the_server_says_how_often_to_poll_within_reason(poll_ms: int | None, seconds: float) -> None:
    assert Task(id="a", status="working", poll_ms=poll_ms).poll_seconds == seconds


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b'{"content": [], "task": {"taskId": "1", "status": "working"}}',
        b'{"content": [{"type": "text", "text": "\\"task\\""}]}',
        b'{"resultType": 5, "task": "task"}',
        b'{"resultType": "task", "taskId": "1", "status": "working", "more": "' + b"x" * 70_000 + b'"}',
    ],
)
def test_what_is_no_handle_is_left_alone(answer: bytes) -> None:
    assert parse_created_task(msgspec.Raw(answer)) is None


@pytest.mark.parametrize(
    "answer",
    [
        b'{"resultType": "task"}',
        b'{"resultType": "task", "taskId": "", "status": "working"}',
        b'{"resultType": "task", "taskId": "' + b"x" * 2_000 + b'", "status": "working"}',
        b'{"resultType": "task", "taskId": "1", "status": "daydreaming"}',
        b'{"resultType": "task", "taskId": "1", "status": "working", "ttlMs": "long"}',
        b'{"task": {"taskId": 1, "status": "working"}}',
        b'{"task": []}',
    ],
)
def test_a_handle_that_cannot_be_read_is_an_error(answer: bytes) -> None:
    with pytest.raises(AnswerUnreadable):
        parse_created_task(msgspec.Raw(answer))


class Replies:
    """A server of few words: the next of them for every request."""

    def __init__(self, *replies: bytes, modern: bool) -> None:
        self.modern = modern
        self.replies = list(replies)

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> msgspec.Raw:
        if not self.replies:
            await anyio.sleep_forever()
        return msgspec.Raw(self.replies.pop(0))


async def test_a_task_that_is_over_without_a_result_is_an_error() -> None:
    server = Replies(b'{"taskId": "1", "status": "completed"}', modern=True)
    with pytest.raises(AnswerUnreadable, match="neither result nor error"):
        await task_result(server, Task(id="1", status="completed"))


async def test_a_list_of_tasks_that_does_not_end_is_cut() -> None:
    page = b'{"tasks": [{"taskId": "1", "status": "working"}], "nextCursor": "again"}'
    assert len(await list_tasks(Replies(page, page, modern=False))) == 2


async def test_a_list_that_is_none_is_an_error() -> None:
    with pytest.raises(AnswerUnreadable, match="not a valid list of tasks"):
        await list_tasks(Replies(b"{}", modern=False))


def page_of(count: int, **more: Any) -> bytes:
    """A page with so many tasks, each with hidden characters in its message."""
    task = {"status": "working", "statusMessage": "a\u200b" * 100}
    return msgspec.json.encode(
        {"tasks": [{"taskId": str(number), **task} for number in range(count)], **more}
    )


async def test_a_long_list_of_tasks_holds_up_nobody() -> None:
    server = Replies(page_of(tasks.MAX_TASKS), modern=False)
    with watch_loop():
        assert len(await list_tasks(server)) == tasks.MAX_TASKS


@pytest.mark.parametrize(
    "pages",
    [
        [page_of(tasks.MAX_TASKS + 1)],
        [page_of(tasks.MAX_TASKS, nextCursor="2"), page_of(1)],
        [page_of(1, nextCursor=str(number), padding="x" * 4_000_000) for number in range(6)],
    ],
    ids=["one page", "two pages", "bytes"],
)
async def test_a_list_of_tasks_is_bounded_over_all_pages(pages: list[bytes]) -> None:
    server = Replies(*pages, modern=False)
    with watch_loop(), pytest.raises(AnswerUnreadable, match="more than 10,000 tasks"):
        await list_tasks(server)


@pytest.mark.parametrize("count", [tasks.MAX_ELICITATIONS + 1, 50_000])
async def test_a_task_with_more_elicitations_than_are_allowed_is_refused_before_they_are_read(
    count: int,
) -> None:
    ask: dict[str, Any] = {"method": "elicitation/create", "params": {}}
    asks = {str(number): ask for number in range(count)}
    raw = msgspec.json.encode({"taskId": "1", "status": "input_required", "inputRequests": asks})
    with watch_loop(), pytest.raises(AnswerUnreadable, match="requests for input"):
        await get_task(Replies(raw, modern=True), "1")


@pytest.mark.parametrize("where", ["_meta", "structuredContent", "top"])
async def test_the_name_of_a_task_is_taken_out_of_a_large_result_in_no_time(where: str) -> None:
    many = {f"k{number}": 1 for number in range(300_000)}
    meta: dict[str, Any] = {RELATED_TASK: {"taskId": "1"}, "kept": 1}
    result: dict[str, Any] = {"content": [], "_meta": meta}
    if where == "top":
        result |= many
    else:
        result[where] = {**result.get(where, {}), **many}
    raw = msgspec.Raw(msgspec.json.encode(result))
    with watch_loop():
        found = without_task(raw)
    assert RELATED_TASK.encode() not in bytes(found)
    read = msgspec.json.decode(found)
    assert read["_meta"] == ({} if where == "_meta" else {"kept": 1})
    assert {**read, "_meta": 0} == {**result, "_meta": 0}


async def test_abandoning_a_task_takes_no_time_of_a_server_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "ABANDON_SECONDS", 0.05)
    with anyio.fail_after(SECONDS):
        await abandon_task(Replies(modern=True), "1")


def test_a_definition_that_cannot_be_read_is_of_no_task() -> None:
    assert task_support(b'{"name": "x", "execution": {"taskSupport": "sometimes"}}') == "forbidden"
