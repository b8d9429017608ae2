"""A stdio MCP server that offers resources and prompts, and asks back: one JSON argument, see `DEFAULTS`.

It speaks either era, with the standard library alone, so that each byte it sends is the test's. Whatever it
hears is noted in the script's `record`, line by line as it came. The name of the tool that is called, or of
the prompt or resource that is wanted, says what happens.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]

MODERN = "2026-07-28"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

DEFAULTS: Message = {
    "record": os.devnull,
    "version": MODERN,
    "capabilities": {
        "tools": {},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "logging": {},
        "completions": {},
    },
    "tools": ["ask", "change", "complete", "crash", "echo", "log", "pages", "progress", "update"],
    "resources": [{"uri": "test://a", "name": "a"}],
    "templates": [{"uriTemplate": "test://{name}", "name": "any"}],
    "prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}],
    "messages": None,  # of every prompt; without any, its arguments
    "skills": [],
    "texts": {},  # of resources; the text of others is their URI
    "refused": {},  # the error codes of methods that are refused
    "unhonoured": [],  # resources that a modern server will not watch
    "questions": {},  # what is asked before a resource or prompt of the name `asks` is handed out
    "state": None,  # what goes with questions to a modern client, and comes back: JSON, as it is
    "rounds": 1,  # how often a modern client is asked
    "one_by_one": False,  # does it wait for an answer before it asks the next, of a client with a handshake?
}


class _Server:
    """One process of the server."""

    def __init__(self, script: Message) -> None:
        self.script = DEFAULTS | script
        self.modern = self.script["version"] == MODERN
        self.level = "emergency"
        self.subscribed: set[str] = set()
        self.listeners: dict[str | int, list[str]] = {}
        self.asking: dict[str, tuple[Message, str]] = {}
        self.answers: dict[str | int, Message] = {}
        self.visited: set[str] = set()
        self.asked = 0
        self.met: list[Message] = []

    # As a process.

    def run(self) -> None:
        self.note("started", os.getpid())
        for line in sys.stdin.buffer:
            self.note("heard", line.decode())
            self.receive(json.loads(line))

    def note(self, what: str, value: object) -> None:
        with open(self.script["record"], "a") as record:
            record.write(json.dumps({what: value}) + "\n")

    # As a peer.

    def send(self, message: Message) -> None:
        self.send_text(json.dumps({"jsonrpc": "2.0", **message}))

    def send_text(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def notify(self, method: str, params: Message) -> None:
        self.send({"method": f"notifications/{method}", "params": params})

    def answer(self, request: Message, result: Message) -> None:
        self.send({"id": request["id"], "result": result})

    def answer_text(self, request: Message, text: str) -> None:
        self.answer(request, {"content": [{"type": "text", "text": text}]})

    def refuse(self, request: Message, code: int, data: object = None) -> None:
        error = {"code": code, "message": "refused"} | ({} if data is None else {"data": data})
        self.send({"id": request["id"], "error": error})

    def receive(self, message: Message) -> None:
        method = message.get("method")
        if method is None:
            self.take_answer(message)
        elif method in self.script["refused"]:
            self.refuse(message, self.script["refused"][method])
        elif method in METHODS:
            METHODS[method](self, message)
        elif "id" in message:
            self.refuse(message, -32601)

    # Beginnings.

    def greeting(self) -> Message:
        return {"capabilities": self.script["capabilities"], "serverInfo": {"name": "asking", "version": "1"}}

    def discover(self, request: Message) -> None:
        if self.modern:
            self.answer(request, self.greeting() | {"supportedVersions": [MODERN], "resultType": "complete"})
        else:
            self.refuse(request, -32601)

    def initialize(self, request: Message) -> None:
        self.answer(request, self.greeting() | {"protocolVersion": self.script["version"]})

    def set_level(self, request: Message) -> None:
        self.level = request["params"]["level"]
        self.answer(request, {})

    # Lists, and what is on them.

    def list_tools(self, request: Message) -> None:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.script["tools"]]
        self.answer(request, {"tools": tools})

    def read(self, request: Message) -> None:
        uri = request["params"]["uri"]

        def hand_out(answers: Message | None) -> Message:
            text = f"{uri} {json.dumps(answers)}" if answers else self.script["texts"].get(uri, uri)
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}

        self.ask_first(request, hand_out, wanted=uri.endswith("asks"))

    def get_prompt(self, request: Message) -> None:
        params = request["params"]

        def hand_out(answers: Message | None) -> Message:
            text = json.dumps(answers if answers else params.get("arguments"))
            said = [{"role": "user", "content": {"type": "text", "text": text}}]
            return {"messages": said if self.script["messages"] is None else self.script["messages"]}

        self.ask_first(request, hand_out, wanted=params["name"] == "asks")

    def complete_argument(self, request: Message) -> None:
        argument = request["params"]["argument"]
        known = ["alpha", "beta", *request["params"].get("context", {}).get("arguments", {}).values()]
        values = [value for value in known if value.startswith(argument["value"])]
        self.answer(request, {"completion": {"values": values, "total": len(values)}})

    # Changes.

    def subscribe(self, request: Message) -> None:
        self.subscribed.add(request["params"]["uri"])
        self.answer(request, {})

    def unsubscribe(self, request: Message) -> None:
        self.subscribed.discard(request["params"]["uri"])
        self.answer(request, {})

    def listen(self, request: Message) -> None:
        wanted = dict(request["params"]["notifications"])
        uris = [
            uri for uri in wanted.pop("resourceSubscriptions", []) if uri not in self.script["unhonoured"]
        ]
        self.listeners[request["id"]] = uris
        honoured = wanted | ({"resourceSubscriptions": uris} if uris else {})
        params = {"notifications": honoured, **on_stream(request["id"])}
        self.notify("subscriptions/acknowledged", params)

    def cancelled(self, notification: Message) -> None:
        self.listeners.pop(notification["params"]["requestId"], None)

    def update(self, request: Message) -> None:
        """Say that a resource, or one below it, has changed, to those who want to know."""
        uri, below = request["params"]["arguments"]["uri"], request["params"]["arguments"].get("below", "")
        if uri in self.subscribed:
            self.notify("resources/updated", {"uri": uri + below})
        for stream, uris in self.listeners.items():
            if uri in uris:
                self.notify("resources/updated", {"uri": uri + below, **on_stream(stream)})
        self.answer_text(request, "updated")

    def change(self, request: Message) -> None:
        """Offer other resources and prompts from now on, and say so."""
        self.script |= request["params"]["arguments"]
        for kind in ("resources", "prompts"):
            streams: list[Message] = [on_stream(stream) for stream in self.listeners] if self.modern else [{}]
            for params in streams:
                self.notify(f"{kind}/list_changed", params)
        self.answer_text(request, "changed")

    # Questions.

    def ask(self, request: Message) -> None:
        """Ask what the arguments say, and return what was answered."""
        arguments = request["params"]["arguments"]
        self.script |= {"questions": {}} | arguments

        def tell(answers: Message | None) -> Message:
            return {"content": [{"type": "text", "text": json.dumps(answers)}]}

        self.ask_first(request, tell, wanted=True)

    def ask_first(
        self, request: Message, finish: Callable[[Message | None], Message], *, wanted: bool
    ) -> None:
        questions: Message = self.script["questions"]
        if not wanted:
            self.answer(request, finish(None))
        elif self.modern:
            self.ask_modern(request, finish, questions)
        else:
            self.answers[request["id"]] = {}
            for key in [*questions][:1] if self.script["one_by_one"] else questions:
                self.put(request | {"finish": finish}, key)

    def put(self, request: Message, key: str) -> None:
        asked = f"{request['id']}-{key}"
        self.asking[asked] = (request, key)
        self.send({"id": asked, **self.script["questions"][key]})

    def ask_modern(
        self, request: Message, finish: Callable[[Message | None], Message], questions: Message
    ) -> None:
        answers = request["params"].get("inputResponses")
        rounds = self.script["rounds"]
        if answers is None and "requestState" not in request["params"]:
            self.asked = 0
        self.asked += 1
        if self.asked > rounds or (rounds == 1 and answers is not None):
            self.answer(request, finish(answers or {}))
            return
        result = f'"resultType": "input_required", "inputRequests": {json.dumps(questions)}'
        if self.script["state"] is not None:
            result += f', "requestState": {self.script["state"]}'
        self.send_text(f'{{"jsonrpc": "2.0", "id": {json.dumps(request["id"])}, "result": {{{result}}}}}')

    def take_answer(self, message: Message) -> None:
        request, key = self.asking.pop(message["id"])
        answers = self.answers[request["id"]]
        answers[key] = message.get("result", message.get("error"))
        if len(answers) == len(self.script["questions"]):
            self.answer(request, request["finish"](answers))
        elif self.script["one_by_one"]:
            self.put(request, [*self.script["questions"]][len(answers)])

    def take_back(self, request: Message) -> None:
        """Take all questions back that nobody answered yet."""
        for asked in self.asking:
            self.notify("cancelled", {"requestId": asked})
        self.answer_text(request, "taken back")

    def pages(self, request: Message) -> None:
        """Want pages opened first, the first time; where the arguments say so, they are done at once."""
        arguments = request["params"]["arguments"]
        ids = [page.get("elicitationId") for page in arguments["pages"]]
        if self.visited >= {*ids} and not arguments.get("always"):
            self.answer_text(request, "carried out")
            return
        self.refuse(request, -32042, {"elicitations": arguments["pages"]})
        self.visited |= {*ids}
        for elicitation_id in ids if arguments.get("done") else ():
            self.notify("elicitation/complete", {"elicitationId": elicitation_id})

    def complete(self, request: Message) -> None:
        """Say that what was to be done on a page is done."""
        self.notify("elicitation/complete", request["params"]["arguments"])
        self.answer_text(request, "told")

    # Other tools.

    def log(self, request: Message) -> None:
        """Log something, if the client wants to hear it."""
        arguments = request["params"]["arguments"]
        meta = request["params"].get("_meta", {})
        level = meta.get("io.modelcontextprotocol/logLevel", "") if self.modern else self.level
        if level and LEVELS.index(arguments["level"]) >= LEVELS.index(level):
            self.notify("message", arguments)
        self.answer_text(request, "logged")

    def progress(self, request: Message) -> None:
        """Say that it has come, and no more."""
        token = request["params"]["_meta"]["progressToken"]
        self.notify("progress", {"progressToken": token, "progress": 1})

    def say(self, request: Message) -> None:
        """Send the messages of the arguments as they are; `$token` stands for this call's progress token."""
        token = json.dumps(request["params"].get("_meta", {}).get("progressToken"))
        for message in request["params"]["arguments"]["messages"]:
            self.send_text(json.dumps({"jsonrpc": "2.0", **message}).replace('"$token"', token))
        self.answer_text(request, "said")

    def echo(self, request: Message) -> None:
        self.answer_text(request, json.dumps(request["params"]["arguments"]))

    def meet(self, request: Message) -> None:
        """Answer only when as many calls are under way as the arguments say: then all of them at once."""
        self.met.append(request)
        if len(self.met) >= request["params"]["arguments"]["count"]:
            for waiting in self.met:
                self.answer_text(waiting, "met")
            self.met = []

    def pid(self, request: Message) -> None:
        self.answer_text(request, str(os.getpid()))

    def crash(self, request: Message) -> None:
        sys.exit(7)


def on_stream(stream: str | int) -> Message:
    return {"_meta": {"io.modelcontextprotocol/subscriptionId": stream}}


def list_of(name: str, field: str) -> Callable[[_Server, Message], None]:
    return lambda server, request: server.answer(request, {field: server.script[name]})


TOOLS: dict[str, Callable[[_Server, Message], None]] = {
    "ask": _Server.ask,
    "change": _Server.change,
    "complete": _Server.complete,
    "crash": _Server.crash,
    "echo": _Server.echo,
    "log": _Server.log,
    "meet": _Server.meet,
    "pages": _Server.pages,
    "pid": _Server.pid,
    "progress": _Server.progress,
    "say": _Server.say,
    "take_back": _Server.take_back,
    "update": _Server.update,
}

METHODS: dict[str, Callable[[_Server, Message], None]] = {
    "server/discover": _Server.discover,
    "initialize": _Server.initialize,
    "logging/setLevel": _Server.set_level,
    "tools/list": _Server.list_tools,
    "resources/list": list_of("resources", "resources"),
    "resources/templates/list": list_of("templates", "resourceTemplates"),
    "prompts/list": list_of("prompts", "prompts"),
    "skills/list": list_of("skills", "skills"),
    "resources/read": _Server.read,
    "prompts/get": _Server.get_prompt,
    "completion/complete": _Server.complete_argument,
    "resources/subscribe": _Server.subscribe,
    "resources/unsubscribe": _Server.unsubscribe,
    "subscriptions/listen": _Server.listen,
    "notifications/cancelled": _Server.cancelled,
    "tools/call": lambda server, request: TOOLS[request["params"]["name"]](server, request),
}


if __name__ == "__main__":
    _Server(json.loads(sys.argv[1])).run()
