"""A stdio MCP server that follows a script: one JSON argument, see `DEFAULTS`. Standard library only.

Its processes write what happens to the script's `record`, one JSON line each, so that a test can count over
restarts. The name of the tool that is called says what happens.
"""

import json
import os
import select
import sys
from collections.abc import Callable
from typing import Any, NoReturn

Message = dict[str, Any]

MODERN = "2026-07-28"
TICK_SECONDS = 0.05

DEFAULTS: Message = {
    "record": os.devnull,
    "stderr": "",  # written at the start
    "exit": None,  # the code to exit with at once …
    "broken_starts": 0,  # … at the first so many starts, and then no more
    "version": "2025-11-25",
    "probe": -32601,  # a code, or `answer`, `silence`, `choke` (on all that follows), `exit`, `unsupported`
    "modern_after": None,  # how many starts there are before it speaks the modern protocol alone
    "silent_after": None,  # how many starts there are before it says nothing at all
    "capabilities": {"tools": {"listChanged": True}},
    "instructions": None,
    "tools": ["echo"],  # names, or whole definitions
    "more_tools": 0,
    "any_tool": False,  # does a tool of another name than those below do what `echo` does?
    "cursors": [],  # the cursors of the pages after the first; the tools are on the last
    "endless": "",  # `new`: there is always one more page; `same`: it is always the same one
    "list_error": None,  # what every listing is refused with
    "failing_lists": 0,  # how many listings are refused before one is not
    "list_silence": False,
    "list_result": None,  # what every listing is answered with
    "ttl": None,
}


class _ScriptedProcess:
    """One process of the server."""

    def __init__(self, script: Message) -> None:
        self.script = DEFAULTS | script
        self.received: list[str] = []
        self.waiting: dict[int, Message] = {}
        self.ticking: dict[int, int] = {}
        self.choked = False
        self.listener: str | int | None = None
        self.pages = 0
        self.calls: dict[int, Message] = {}

    # ── as a process ──

    def run(self) -> None:
        self.note("started", os.getpid())
        if self.script["stderr"]:
            os.write(2, self.script["stderr"].encode() + b"\n")
        if self.script["exit"] is not None or self.starts() <= self.script["broken_starts"]:
            sys.exit(self.script["exit"] or 1)
        if self.script["modern_after"] is not None and self.starts() > self.script["modern_after"]:
            self.script |= {"version": MODERN, "probe": "answer"}
        self.choked = self.script["silent_after"] is not None and self.starts() > self.script["silent_after"]
        pending = b""
        while True:
            readable, _, _ = select.select([0], [], [], TICK_SECONDS if self.ticking else None)
            if not readable:
                self.tick()
                continue
            data = os.read(0, 65536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self.receive(json.loads(line))

    def note(self, what: str, value: object) -> None:
        with open(self.script["record"], "a") as record:
            record.write(json.dumps({what: value}) + "\n")

    def starts(self) -> int:
        with open(self.script["record"]) as record:
            return sum("started" in json.loads(line) for line in record)

    # ── as a peer ──

    def send(self, *messages: Message) -> None:
        lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
        view = memoryview(lines.encode())
        while view:
            view = view[os.write(1, view) :]

    def answer(self, request: Message, result: object) -> None:
        self.send({"id": request["id"], "result": result})

    def answer_text(self, request: Message, text: str) -> None:
        self.answer(request, {"content": [{"type": "text", "text": text}]})

    def refuse(self, request: Message, code: int) -> None:
        self.send({"id": request["id"], "error": {"code": code, "message": "refused"}})

    def progress(self, request: Message, progress: int) -> None:
        """Say how far a call is; its argument `reports` says more, such as the total."""
        token = request["params"]["_meta"]["progressToken"]
        reports = request["params"]["arguments"].get("reports", {})
        params = {"progressToken": token, "progress": progress} | reports
        self.send({"method": "notifications/progress", "params": params})

    def receive(self, message: Message) -> None:
        method = message.get("method", "answer")
        self.received.append(method)
        self.note("received", method)
        if self.choked:
            return
        if method in METHODS:
            METHODS[method](self, message)
        elif method == "tools/call":
            name = message["params"]["name"]
            self.note("called", name)
            (TOOLS.get(name, _ScriptedProcess.echo) if self.script["any_tool"] else TOOLS[name])(
                self, message
            )
        elif "id" in message and method != "answer":
            self.refuse(message, -32601)

    # ── methods ──

    def discover(self, request: Message) -> None:
        match self.script["probe"]:
            case "answer":
                offer = {"supportedVersions": [self.script["version"]], "resultType": "complete"}
                self.answer(request, self.greeting() | offer)
            case "silence":
                return
            case "choke":
                self.choked = True
            case "exit":
                sys.exit(1)
            case "unsupported":
                self.refuse_version(request)
            case code:
                self.refuse(request, code)

    def initialize(self, request: Message) -> None:
        if self.script["version"] == MODERN:
            self.refuse_version(request)
        else:
            self.answer(request, self.greeting() | {"protocolVersion": self.script["version"]})

    def refuse_version(self, request: Message) -> None:
        data = {"supported": [self.script["version"]], "requested": "another"}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        self.send({"id": request["id"], "error": error})

    def listen(self, request: Message) -> None:
        self.listener = request["id"]
        params = {"notifications": {"toolsListChanged": True}, **self.on_subscription()}
        self.send({"method": "notifications/subscriptions/acknowledged", "params": params})

    def on_subscription(self) -> Message:
        return {"_meta": {"io.modelcontextprotocol/subscriptionId": self.listener}}

    def list_changed(self) -> Message:
        message: Message = {"method": "notifications/tools/list_changed"}
        return message if self.listener is None else message | {"params": self.on_subscription()}

    def greeting(self) -> Message:
        info = {"name": "scripted", "version": "1"}
        greeting = {"capabilities": self.script["capabilities"], "serverInfo": info}
        instructions = self.script["instructions"]
        return greeting if instructions is None else greeting | {"instructions": instructions}

    def list_tools(self, request: Message) -> None:
        script, cursor = self.script, request.get("params", {}).get("cursor")
        if script["list_silence"]:
            return
        if script["list_error"] is not None:
            self.refuse(request, script["list_error"])
        elif self.received.count("tools/list") <= script["failing_lists"]:
            self.refuse(request, -32603)
        elif script["list_result"] is not None:
            self.answer(request, script["list_result"])
        elif script["endless"]:
            self.pages += 1
            next_cursor = "again" if script["endless"] == "same" else f"page-{self.pages}"
            self.answer(request, {"tools": [_definition(f"tool-{self.pages}")], "nextCursor": next_cursor})
        else:
            page = 0 if cursor is None else script["cursors"].index(cursor) + 1
            if page < len(script["cursors"]):
                result = {"tools": [_definition(f"page-{page}")], "nextCursor": script["cursors"][page]}
            else:
                more = [_definition(f"tool-{number}") for number in range(script["more_tools"])]
                result = {"tools": [*map(_definition, script["tools"]), *more]}
            self.answer(request, result if script["ttl"] is None else result | {"ttlMs": script["ttl"]})

    def cancelled(self, notification: Message) -> None:
        request_id = notification["params"]["requestId"]
        self.ticking.pop(request_id, None)
        request = self.waiting.pop(request_id, None)
        if request is not None and request["params"]["arguments"].get("late"):
            self.answer_text(request, "too late")

    # ── tools ──

    def echo(self, request: Message) -> None:
        self.answer_text(request, json.dumps(request["params"]["arguments"]))

    def crash(self, request: Message) -> NoReturn:
        os.write(2, b"Traceback: the sky fell\n")
        sys.exit(7)

    def wait(self, request: Message) -> None:
        """Say that it has come, and nothing more until it is cancelled."""
        self.waiting[request["id"]] = request
        self.progress(request, 1)

    def tick(self) -> None:
        for request_id, left in [*self.ticking.items()]:
            request = self.calls[request_id]
            self.progress(request, 1_000_000 - left)
            self.ticking[request_id] = left - 1
            if left == 1:
                del self.ticking[request_id]
                self.answer_text(request, "done")

    def start_ticking(self, request: Message) -> None:
        """Report progress that many times, or for ever, and answer."""
        self.calls[request["id"]] = request
        self.ticking[request["id"]] = request["params"]["arguments"].get("times", 1_000_000)

    def hold(self, request: Message) -> None:
        """Say that it has come, and answer with what the file says once it is written to."""
        self.progress(request, 1)
        with open(request["params"]["arguments"]["file"]) as file:
            self.answer_text(request, file.read())

    def announce(self, request: Message) -> None:
        count = request["params"]["arguments"]["times"]
        self.send(*[self.list_changed()] * count)
        self.answer_text(request, "announced")

    def ask(self, request: Message) -> None:
        count = request["params"]["arguments"]["times"]
        self.send(*({"id": f"question-{number}", "method": "roots/list"} for number in range(count)))
        self.answer_text(request, "asked")

    def change_tools(self, request: Message) -> None:
        arguments = request["params"]["arguments"]
        self.script["tools"] = arguments["tools"]
        if not arguments.get("silently"):
            self.send(self.list_changed())
        self.answer_text(request, "changed")

    def break_lists(self, request: Message) -> None:
        self.script["list_error"] = -32603
        self.send(self.list_changed())
        self.answer_text(request, "broken")


def _definition(tool: str | Message) -> Message:
    return {"name": tool, "inputSchema": {"type": "object"}} if isinstance(tool, str) else tool


METHODS: dict[str, Callable[[_ScriptedProcess, Message], None]] = {
    "server/discover": _ScriptedProcess.discover,
    "initialize": _ScriptedProcess.initialize,
    "subscriptions/listen": _ScriptedProcess.listen,
    "tools/list": _ScriptedProcess.list_tools,
    "notifications/cancelled": _ScriptedProcess.cancelled,
}

TOOLS: dict[str, Callable[[_ScriptedProcess, Message], None]] = {
    "announce": _ScriptedProcess.announce,
    "ask": _ScriptedProcess.ask,
    "break_lists": _ScriptedProcess.break_lists,
    "change_tools": _ScriptedProcess.change_tools,
    "crash": _ScriptedProcess.crash,
    "echo": _ScriptedProcess.echo,
    "fail": lambda server, request: server.answer(
        request, {"content": [{"type": "text", "text": "it failed"}], "isError": True}
    ),
    "hold": _ScriptedProcess.hold,
    "meta": lambda server, request: server.answer_text(
        request, json.dumps(request["params"].get("_meta", {}))
    ),
    "no_result": lambda server, request: server.answer(request, {"content": "a text is no list"}),
    "pid": lambda server, request: server.answer_text(request, str(os.getpid())),
    "received": lambda server, request: server.answer_text(request, json.dumps(server.received)),
    "refuse": lambda server, request: server.refuse(request, -32602),
    "tick": _ScriptedProcess.start_ticking,
    "unreadable": lambda server, request: server.answer(request, {"n": float("nan")}),
    "wait": _ScriptedProcess.wait,
}


if __name__ == "__main__":
    _ScriptedProcess(json.loads(sys.argv[1])).run()
