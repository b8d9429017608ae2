"""An MCP server whose tools can run as tasks: 2026-07-28 with the extension, 2025-11-25 with its own.

As a program it serves stdio in both eras, with standard library only; `tasks_http` serves the later one.
Tasks are kept in the file that is its argument, so that another process can go on with them. No clock moves
them: a task takes as many polls as its caller asked for, and who waits for its result gets it at once.
"""

import json
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Message = dict[str, Any]

MODERN, LEGACY = "2026-07-28", "2025-11-25"
EXTENSION = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol/"
TTL_MS = 60_000
POLL_MS = 10
PAGE = 2

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = -32601, -32602, -32603
MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32021, -32022

SUPPORT = {
    "work": "optional",  # ends well, after `polls` polls, with `text`
    "stumble": "optional",  # ends with a result that says that the tool failed
    "crash": "optional",  # ends with an error of the protocol
    "greet": "optional",  # asks for the `questions`, then greets
    "endless": "optional",  # does not end, unless it is cancelled
    "long": "required",  # like `work`, for clients that can wait for tasks alone
    "quick": "forbidden",  # answers at once, whoever asks
    "ask_first": "forbidden",  # asks before it begins, in the later era, and becomes a task then
}

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Refused(Exception):
    """A request is answered with an error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error: Message = {"code": code, "message": message} | ({"data": data} if data else {})


@dataclass
class Task:
    """A task as it is kept."""

    id: str
    tool: str
    arguments: Message
    created: str
    updated: str
    ttl: int | None
    polls: int
    status: str = "working"
    message: str = "begun"
    questions: list[str] = field(default_factory=list[str])
    answers: dict[str, Message] = field(default_factory=dict[str, Message])
    lag: int = 0  # for how many polls answered questions stay in sight
    result: Message | None = None
    error: Message | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    @property
    def is_expired(self) -> bool:
        lifetime = timedelta(milliseconds=self.ttl) if self.ttl is not None else timedelta.max
        return now() - datetime.fromisoformat(self.created) >= lifetime

    @property
    def open_questions(self) -> list[str]:
        return [key for key in self.questions if key not in self.answers]

    @property
    def fields(self) -> Message:
        """What both eras tell of a task, under the same names."""
        return {
            "taskId": self.id,
            "status": self.status,
            "statusMessage": self.message,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
        }


def now() -> datetime:
    return datetime.now(UTC)


def text_result(text: str, *, is_error: bool = False) -> Message:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def question(key: str) -> Message:
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": f"What is your {key}?", "requestedSchema": FORM},
    }


class Tasks:
    """The tasks there are, in a file that is always whole."""

    def __init__(self, file: Path) -> None:
        self._file = file
        kept: list[Message] = json.loads(file.read_text()) if file.exists() else []
        self.all = {str(task["id"]): Task(**task) for task in kept}
        self.on_move: Callable[[Task], None] = lambda task: None

    def save(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps([asdict(task) for task in self.all.values()]))
        os.replace(fresh, self._file)

    def create(self, tool: str, arguments: Message, *, ttl: int | None, can_ask: bool) -> Task:
        moment = now().isoformat()
        task = Task(
            id=secrets.token_urlsafe(16),
            tool=tool,
            arguments=arguments,
            created=moment,
            updated=moment,
            ttl=arguments.get("ttl_ms", ttl),
            polls=arguments.get("polls", 1),
            questions=arguments.get("questions", ["name"]) if tool == "greet" and can_ask else [],
            lag=arguments.get("lag", 0),
        )
        self.all[task.id] = task
        self.save()
        return task

    def find(self, params: Message) -> Task:
        task = self.all.get(params.get("taskId", ""))
        if task is None:
            raise Refused(INVALID_PARAMS, "Failed to retrieve task: Task not found")
        if task.is_expired:
            del self.all[task.id]
            self.save()
            raise Refused(INVALID_PARAMS, "Failed to retrieve task: Task has expired")
        return task

    def move(self, task: Task, status: str, message: str) -> None:
        task.status, task.message, task.updated = status, message, now().isoformat()
        self.save()
        self.on_move(task)

    def advance(self, task: Task, *, in_a_hurry: bool = False) -> None:
        """Do some of the work, or all of it."""
        if task.is_over or task.tool == "endless":
            return
        if task.open_questions or task.lag:
            task.lag -= 0 if task.open_questions else 1
            self.move(task, "input_required", "waiting for answers")
        elif task.polls and not in_a_hurry:
            task.polls -= 1
            self.move(task, "working", f"{task.polls} to go")
        else:
            task.result, task.error = outcome(task.tool, task.arguments, task.answers)
            self.move(task, "failed" if task.error else "completed", "over")


def outcome(
    tool: str, arguments: Message, answers: dict[str, Message]
) -> tuple[Message | None, Message | None]:
    """The result or the error that a call of the tool brings."""
    match tool:
        case "stumble":
            return text_result("the tool failed", is_error=True), None
        case "crash":
            return None, {"code": INTERNAL, "message": "the disk is full", "data": {"free": 0}}
        case "greet" | "ask_first":
            said = [answer.get("content", {}).get("name", "nobody") for answer in answers.values()]
            return text_result(f"Hello, {' '.join(said) or 'nobody'}!"), None
        case _:
            return text_result(arguments.get("text", "worked")), None


def at_once(tool: str, arguments: Message) -> Message:
    result, error = outcome(tool, arguments, {})
    if error:
        raise Refused(error["code"], error["message"], error["data"])
    assert result is not None
    return result


class ModernServer:
    """2026-07-28, with the extension."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.methods: dict[str, Callable[[Message, Message], Message]] = {
            "server/discover": self.discover,
            "tools/list": self.list_tools,
            "tools/call": self.call_tool,
            "tasks/get": self.get,
            "tasks/update": self.update,
            "tasks/cancel": self.cancel,
        }

    def answer(self, request: Message) -> Message:
        params = request.get("params", {})
        meta = params["_meta"]
        if (version := meta[f"{META}protocolVersion"]) != MODERN:
            data = {"supported": [MODERN], "requested": version}
            raise Refused(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        if request["method"] not in self.methods:
            raise Refused(METHOD_NOT_FOUND, "Method not found")
        capabilities = meta[f"{META}clientCapabilities"]
        if request["method"].startswith("tasks/") and not takes_tasks(capabilities):
            raise missing_capability({"extensions": {EXTENSION: {}}})
        return {"resultType": "complete"} | self.methods[request["method"]](params, capabilities)

    def discover(self, params: Message, capabilities: Message) -> Message:
        offer: Message = {"tools": {}, "extensions": {EXTENSION: {}}}
        return {"supportedVersions": [MODERN], "capabilities": offer, "ttlMs": 0, "cacheScope": "public"}

    def list_tools(self, params: Message, capabilities: Message) -> Message:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in SUPPORT]
        return {"tools": tools, "ttlMs": 0, "cacheScope": "public"}

    def call_tool(self, params: Message, capabilities: Message) -> Message:
        name, arguments = known_tool(params), params.get("arguments", {})
        can_ask = "elicitation" in capabilities
        if name == "ask_first" and not can_ask:
            raise missing_capability({"elicitation": {}})
        if name == "ask_first" and "requestState" not in params:
            asked = {"who": question("name")}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "asked: who"}
        if name == "quick":
            return at_once(name, arguments)
        if not takes_tasks(capabilities):
            if name in ("long", "endless"):
                raise missing_capability({"extensions": {EXTENSION: {}}})
            return at_once(name, arguments)
        task = self.tasks.create(name, arguments, ttl=TTL_MS, can_ask=can_ask)
        task.answers |= params.get("inputResponses", {})
        self.tasks.save()
        return {"resultType": "task"} | self.told(task)

    def told(self, task: Task) -> Message:
        return task.fields | {"ttlMs": task.ttl, "pollIntervalMs": POLL_MS}

    def get(self, params: Message, capabilities: Message) -> Message:
        task = self.tasks.find(params)
        self.tasks.advance(task)
        match task.status:
            case "input_required":
                keys = task.open_questions or task.questions
                return self.told(task) | {"inputRequests": {key: question(key) for key in keys}}
            case "completed":
                return self.told(task) | {"result": task.result}
            case "failed":
                return self.told(task) | {"error": task.error}
            case _:
                return self.told(task)

    def update(self, params: Message, capabilities: Message) -> Message:
        task = self.tasks.find(params)
        for key in task.open_questions:
            if key in params["inputResponses"]:
                task.answers[key] = params["inputResponses"][key]
        self.tasks.save()
        return {}

    def cancel(self, params: Message, capabilities: Message) -> Message:
        task = self.tasks.find(params)
        if not task.is_over:
            self.tasks.move(task, "cancelled", "cancelled by request")
        return {}


def takes_tasks(capabilities: Message) -> bool:
    return EXTENSION in capabilities.get("extensions", {})


def missing_capability(required: Message) -> Refused:
    return Refused(
        MISSING_CAPABILITY, "Missing required client capability", {"requiredCapabilities": required}
    )


def known_tool(params: Message) -> str:
    if params["name"] not in SUPPORT:
        raise Refused(INVALID_PARAMS, "Unknown tool")
    return params["name"]


class LegacyServer:
    """2025-11-25, whose tasks ask their questions while somebody waits for the result."""

    def __init__(self, tasks: Tasks, send: Callable[[Message], None]) -> None:
        self.tasks = tasks
        self.send = send
        self.can_ask = False
        self.waiting: dict[str, list[str | int]] = {}
        self.asked: dict[str, tuple[Task, str]] = {}
        self.methods: dict[str, Callable[[Message], Message]] = {
            "initialize": self.initialize,
            "ping": lambda params: {},
            "tools/list": self.list_tools,
            "tools/call": self.call_tool,
            "tasks/get": self.get,
            "tasks/list": self.list_tasks,
            "tasks/cancel": self.cancel,
        }

    def answer(self, request: Message) -> Message | None:
        params = request.get("params", {})
        if request["method"] == "tasks/result":
            self.wait(request["id"], self.tasks.find(params))
            return None
        if request["method"] not in self.methods:
            raise Refused(METHOD_NOT_FOUND, "Method not found")
        return self.methods[request["method"]](params)

    def initialize(self, params: Message) -> Message:
        self.can_ask = "elicitation" in params["capabilities"]
        self.tasks.on_move = self.moved
        offer: Message = {
            "tools": {},
            "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
        }
        info = {"name": "tasks", "version": "1"}
        return {"protocolVersion": LEGACY, "capabilities": offer, "serverInfo": info}

    def list_tools(self, params: Message) -> Message:
        schema = {"type": "object"}
        return {
            "tools": [
                {"name": name, "inputSchema": schema, "execution": {"taskSupport": support}}
                for name, support in SUPPORT.items()
            ]
        }

    def call_tool(self, params: Message) -> Message:
        name, arguments = known_tool(params), params.get("arguments", {})
        unwanted = "required" if "task" not in params else "forbidden"
        if SUPPORT[name] == unwanted:
            raise Refused(METHOD_NOT_FOUND, f"Task augmentation is {SUPPORT[name]} for this tool")
        if "task" not in params:
            return at_once(name, arguments)
        ttl = params["task"].get("ttl", TTL_MS)
        return {"task": self.told(self.tasks.create(name, arguments, ttl=ttl, can_ask=self.can_ask))}

    def told(self, task: Task) -> Message:
        failed = bool((task.result or {}).get("isError"))
        status = {"status": "failed"} if failed else {}
        return task.fields | status | {"ttl": task.ttl, "pollInterval": POLL_MS}

    def get(self, params: Message) -> Message:
        task = self.tasks.find(params)
        self.tasks.advance(task)
        return self.told(task)

    def list_tasks(self, params: Message) -> Message:
        start = int(params.get("cursor", "0"))
        tasks = list(self.tasks.all.values())
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tasks) else {}
        return {"tasks": [self.told(task) for task in tasks[start : start + PAGE]]} | more

    def cancel(self, params: Message) -> Message:
        task = self.tasks.find(params)
        if task.is_over:
            message = f"Cannot cancel task: already in terminal status '{task.status}'"
            raise Refused(INVALID_PARAMS, message)
        self.tasks.move(task, "cancelled", "cancelled by request")
        self.settle(task)
        return self.told(task)

    def wait(self, request_id: str | int, task: Task) -> None:
        self.waiting.setdefault(task.id, []).append(request_id)
        self.tasks.advance(task, in_a_hurry=True)
        for key in task.open_questions:
            asked = question(key)
            asked["id"] = f"{task.id}/{key}"
            asked["params"]["_meta"] = related(task)
            self.asked[asked["id"]] = (task, key)
            self.send(asked)
        self.settle(task)

    def answered(self, message: Message) -> None:
        task, key = self.asked.pop(message["id"])
        task.answers[key] = message.get("result", {"action": "cancel"})
        self.tasks.advance(task, in_a_hurry=True)
        self.settle(task)

    def settle(self, task: Task) -> None:
        """Answer everybody who waits for the result, if there is one."""
        for request_id in self.waiting.pop(task.id, []) if task.is_over else ():
            if task.result is not None:
                self.send({"id": request_id, "result": task.result | {"_meta": related(task)}})
            else:
                cancelled = {"code": INTERNAL, "message": "The task was cancelled"}
                self.send({"id": request_id, "error": task.error or cancelled})

    def give_up(self, request_id: str | int) -> None:
        """Nobody waits for this any more."""
        for waiting in self.waiting.values():
            if request_id in waiting:
                waiting.remove(request_id)

    def moved(self, task: Task) -> None:
        self.send({"method": "notifications/tasks/status", "params": self.told(task)})


def related(task: Task) -> Message:
    return {f"{META}related-task": {"taskId": task.id}}


class Peer:
    """Both eras on one connection: each message says which one it is of."""

    def __init__(self, file: Path, send: Callable[[Message], None], *, only_legacy: bool) -> None:
        self.send = send
        self.only_legacy = only_legacy
        tasks = Tasks(file)
        self.modern = ModernServer(tasks)
        self.legacy = LegacyServer(tasks, send)

    def receive(self, message: Message) -> None:
        method = message.get("method")
        if method is None:
            self.legacy.answered(message)
        elif method == "notifications/cancelled":
            self.legacy.give_up(message["params"]["requestId"])
        elif "id" in message:
            try:
                modern = f"{META}protocolVersion" in message.get("params", {}).get("_meta", {})
                modern = modern and not self.only_legacy
                result = self.modern.answer(message) if modern else self.legacy.answer(message)
            except Refused as refused:
                self.send({"id": message["id"], "error": refused.error})
                return
            if result is not None:
                self.send({"id": message["id"], "result": result})


def serve_stdio(file: Path, *, only_legacy: bool) -> None:
    def send(message: Message) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    peer = Peer(file, send, only_legacy=only_legacy)
    for line in sys.stdin:
        peer.receive(json.loads(line))


if __name__ == "__main__":
    if "required" in sys.argv:  # every tool that can run as a task runs in no other way
        SUPPORT.update({name: "required" for name, support in SUPPORT.items() if support == "optional"})
    serve_stdio(Path(sys.argv[1]), only_legacy=LEGACY in sys.argv)
