"""The large set of real servers, as a table: how each is started, and calls whose answers are known.

`tests/tools/install-more-servers` installs them. None needs anything beyond this machine: the service that a
server is made for is a page of the test, or absent, and then the answer is an error about that. In strings,
`{project}`, `{site}` and `{absent}` stand for the test's folder, its site and a URL that refuses connections.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.conformance.suite import PROGRAMS
from tests.conftest import Machine
from tests.gateway.real_servers import eight_servers
from tests.real.servers import HANDSHAKE, MODERN, NPM, TEST_TOOLS, stdio_entry

MORE = TEST_TOOLS / "more"
ABSENT = "http://127.0.0.1:9"
CHROMIUM = "/usr/bin/chromium"
PAGE = "data:text/html,<title>a page</title><h1>of the test</h1>"

# Whatever a server would send to the network ends at a proxy that is not there.
OFFLINE = {
    "HTTP_PROXY": ABSENT,
    "HTTPS_PROXY": ABSENT,
    "http_proxy": ABSENT,
    "https_proxy": ABSENT,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "NODE_USE_ENV_PROXY": "1",
    "NODE_NO_WARNINGS": "1",
}

Outcome = Literal["result", "tool error", "protocol error"]
"""How a call ends: with a result, with one that is marked as an error, or with a JSON-RPC error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call, and a part of its answer."""

    tool: str
    arguments: Mapping[str, Any]
    answer: str
    outcome: Outcome = "result"


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """A server ready to be examined: its entry in a configuration, and what is known about it."""

    server_id: str
    package: str
    entry: dict[str, Any]
    version: str
    calls: tuple[Call, ...]
    """In this order; each but the first may build on those before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A server as the table has it."""

    package: str
    program: str
    calls: tuple[Call, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    version: str = HANDSHAKE

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return MORE / self.package.removeprefix("@").replace("/", "-")

    def examine(self, server_id: str, machine: Machine, site: str) -> Examined:
        """The server on this machine."""

        def fill(value: Any) -> Any:
            text = json.dumps(value).replace("{project}", str(machine.project))
            return json.loads(text.replace("{site}", site).replace("{absent}", ABSENT))

        npm = self.folder / "node_modules" / ".bin" / self.program
        # Some want a newer Node than the machine may have.
        node = str(PROGRAMS / "node") if (PROGRAMS / "node").exists() else "node"
        argv = [node, str(npm)] if npm.exists() else [str(self.folder / "bin" / self.program)]
        env = {**OFFLINE, **fill(self.env)}
        calls = tuple(
            Call(
                tool=call.tool,
                arguments=fill(call.arguments),
                answer=fill(call.answer),
                outcome=call.outcome,
            )
            for call in self.calls
        )
        return Examined(
            server_id=server_id,
            package=(self.folder / ".installed").read_text(encoding="utf-8").partition(" ")[0],
            entry=stdio_entry(
                machine,
                server_id,
                [*argv, *fill(self.args)],
                env,
                cwd=str(machine.project),
                request_timeout_ms=90_000,
            ),
            version=self.version,
            calls=calls,
        )


def _call(
    tool: str, arguments: Mapping[str, Any], answer: str, outcome: Outcome = "result"
) -> tuple[Call, ...]:
    return (Call(tool=tool, arguments=arguments, answer=answer, outcome=outcome),)


OLDEST = "2024-11-05"
REFUSED = "ECONNREFUSED"

ROWS: dict[str, Row] = {
    # From npm. Those of 2024-11-05 are the reference servers of the protocol's first year.
    "chart": Row(
        package="@antv/mcp-server-chart",
        program="mcp-server-chart",
        env={"VIS_REQUEST_SERVER": "{site}/chart"},
        calls=_call("generate_pie_chart", {"data": [{"category": "a", "value": 1}]}, "{site}/chart.png"),
    ),
    "circleci": Row(
        package="@circleci/mcp-server-circleci",
        program="mcp-server-circleci",
        env={"CIRCLECI_TOKEN": "none"},
        calls=_call("list_followed_projects", {"params": {}}, "fetch failed", "tool error"),
    ),
    "elasticsearch": Row(
        package="@elastic/mcp-server-elasticsearch",
        program="mcp-server-elasticsearch",
        env={"ES_URL": "{absent}", "ES_API_KEY": "none"},
        version="2025-06-18",
        calls=_call("list_indices", {"indexPattern": "*"}, REFUSED),
    ),
    "eslint": Row(
        package="@eslint/mcp",
        program="mcp",
        calls=_call("lint-files", {"filePaths": ["{project}/absent.js"]}, "No files matching", "tool error"),
    ),
    "brave": Row(
        package="@modelcontextprotocol/server-brave-search",
        program="mcp-server-brave-search",
        env={"BRAVE_API_KEY": "none"},
        version=OLDEST,
        calls=_call("brave_web_search", {"query": "a"}, "fetch failed", "tool error"),
    ),
    "everart": Row(
        package="@modelcontextprotocol/server-everart",
        program="mcp-server-everart",
        env={"EVERART_API_KEY": "none"},
        version=OLDEST,
        calls=_call("generate_image", {"prompt": "a"}, REFUSED, "tool error"),
    ),
    "github": Row(
        package="@modelcontextprotocol/server-github",
        program="mcp-server-github",
        version=OLDEST,
        calls=_call("search_repositories", {"query": "a"}, "fetch failed", "protocol error"),
    ),
    "gitlab": Row(  # its definitions have schemas without `type`
        package="@modelcontextprotocol/server-gitlab",
        program="mcp-server-gitlab",
        env={"GITLAB_PERSONAL_ACCESS_TOKEN": "none", "GITLAB_API_URL": "{site}/gitlab"},
        version=OLDEST,
        calls=_call("search_repositories", {"search": "a"}, "the repository of the test"),
    ),
    "maps": Row(
        package="@modelcontextprotocol/server-google-maps",
        program="mcp-server-google-maps",
        env={"GOOGLE_MAPS_API_KEY": "none"},
        version=OLDEST,
        calls=_call("maps_geocode", {"address": "a"}, REFUSED, "tool error"),
    ),
    "postgres": Row(  # its resources cannot be listed without the database; its tools can
        package="@modelcontextprotocol/server-postgres",
        program="mcp-server-postgres",
        args=("postgresql://user:none@127.0.0.1:9/absent",),
        version=OLDEST,
        calls=_call("query", {"sql": "select 1"}, REFUSED, "protocol error"),
    ),
    "puppeteer": Row(
        package="@modelcontextprotocol/server-puppeteer",
        program="mcp-server-puppeteer",
        env={
            "PUPPETEER_LAUNCH_OPTIONS": json.dumps(
                {"headless": True, "executablePath": CHROMIUM, "args": ["--no-sandbox"]}
            ),
            "ALLOW_DANGEROUS": "true",
        },
        version=OLDEST,
        calls=(
            *_call("puppeteer_navigate", {"url": PAGE}, "Navigated to data:"),
            *_call("puppeteer_evaluate", {"script": "document.body.innerText"}, "of the test"),
        ),
    ),
    "slack": Row(
        package="@modelcontextprotocol/server-slack",
        program="mcp-server-slack",
        env={"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "none"},
        version=OLDEST,
        calls=_call("slack_list_channels", {}, "fetch failed"),
    ),
    "notion": Row(
        package="@notionhq/notion-mcp-server",
        program="notion-mcp-server",
        env={"NOTION_TOKEN": "none"},
        calls=_call("API-get-self", {}, REFUSED, "protocol error"),
    ),
    "playwright": Row(  # it lists properties that have a default as required
        package="@playwright/mcp",
        program="playwright-mcp",
        args=("--headless", "--isolated", "--no-sandbox", "--executable-path", CHROMIUM),
        calls=(
            *_call("browser_take_screenshot", {}, "type: 'png'"),
            *_call("browser_navigate", {"url": PAGE}, "Page URL: data:text/html"),
            *_call("browser_console_messages", {}, "Result"),
        ),
    ),
    "sentry": Row(
        package="@sentry/mcp-server",
        program="sentry-mcp",
        args=("--access-token=none",),
        calls=_call("search_sentry_tools", {"query": "issue"}, "add_issue_note"),
    ),
    "devtools": Row(
        package="chrome-devtools-mcp",
        program="chrome-devtools-mcp",
        args=(
            "--headless",
            "--isolated",
            "--no-usage-statistics",
            "--chromeArg=--no-sandbox",
            "--executablePath",
            CHROMIUM,
        ),
        calls=_call("new_page", {"url": PAGE}, "a page (data:text/html"),
    ),
    "exa": Row(
        package="exa-mcp-server",
        program="exa-mcp-server",
        env={"EXA_API_KEY": "none"},
        calls=_call("web_search_exa", {"query": "a"}, "fetch failed", "tool error"),
    ),
    "figma": Row(
        package="figma-developer-mcp",
        program="figma-developer-mcp",
        args=("--figma-api-key=none", "--stdio"),
        calls=_call("get_figma_data", {"fileKey": "abc"}, "fetch failed", "tool error"),
    ),
    "firecrawl": Row(
        package="firecrawl-mcp",
        program="firecrawl-mcp",
        env={"FIRECRAWL_API_KEY": "none", "FIRECRAWL_API_URL": "{absent}"},
        calls=_call("firecrawl_scrape", {"url": "http://test.example"}, REFUSED, "tool error"),
    ),
    "mermaid": Row(
        package="mcp-mermaid",
        program="mcp-mermaid",
        calls=_call(
            "generate_mermaid_diagram",
            {"mermaid": "graph TD; A-->B"},
            "Executable doesn't exist",
            "protocol error",
        ),
    ),
    "commands": Row(
        package="mcp-server-commands",
        program="mcp-server-commands",
        version=OLDEST,
        calls=_call("run_command", {"command": "echo a line of the test"}, "a line of the test"),
    ),
    "kubernetes": Row(
        package="mcp-server-kubernetes",
        program="mcp-server-kubernetes",
        calls=_call("ping", {}, ""),
    ),
    "mongodb": Row(
        package="mongodb-mcp-server",
        program="mongodb-mcp-server",
        version=MODERN,
        env={"MDB_MCP_TELEMETRY": "disabled"},
        calls=_call("list-connections", {}, "no active connections"),
    ),
    "obsidian": Row(
        package="obsidian-mcp",
        program="obsidian-mcp",
        args=("{project}/vault",),
        version=MODERN,
        calls=_call("obsidian_list_vaults", {}, '"vault"'),
    ),
    "tavily": Row(
        package="tavily-mcp",
        program="tavily-mcp",
        env={"TAVILY_API_KEY": "none"},
        calls=_call("tavily_search", {"query": "a"}, REFUSED, "tool error"),
    ),
    # From PyPI.
    "arxiv": Row(
        package="arxiv-mcp-server",
        program="arxiv-mcp-server",
        args=("--storage-path", "{project}/papers"),
        calls=_call("list_papers", {}, '"total_papers": 0'),
    ),
    "aws": Row(
        package="awslabs.aws-documentation-mcp-server",
        program="awslabs.aws-documentation-mcp-server",
        version=MODERN,
        calls=_call(
            "read_documentation", {"url": "https://test.example/a.html"}, "supported domains", "tool error"
        ),
    ),
    "cli": Row(
        package="cli-mcp-server",
        program="cli-mcp-server",
        env={"ALLOWED_DIR": "{project}"},
        calls=_call("run_command", {"command": "pwd"}, "{project}"),
    ),
    "duckduckgo": Row(
        package="duckduckgo-mcp-server",
        program="duckduckgo-mcp-server",
        args=("--allow-private-urls",),
        version=MODERN,
        calls=_call("fetch_content", {"url": "{site}/page"}, "a page of the test"),
    ),
    "excel": Row(
        package="excel-mcp-server",
        program="excel-mcp-server",
        args=("stdio",),
        version=MODERN,
        calls=_call("create_workbook", {"path": "{project}/book.xlsx", "overwrite": True}, "book.xlsx"),
    ),
    "markitdown": Row(
        package="markitdown-mcp",
        program="markitdown-mcp",
        version=MODERN,
        calls=_call("convert_to_markdown", {"uri": "data:text/html,<h1>of the test</h1>"}, "# of the test"),
    ),
    "alchemy": Row(
        package="mcp-alchemy",
        program="mcp-alchemy",
        env={"DB_URL": "sqlite:///{project}/alchemy.db"},
        version=MODERN,
        calls=_call("execute_query", {"query": "select 6 * 7 as answer"}, "42"),
    ),
    "atlassian": Row(
        package="mcp-atlassian",
        program="mcp-atlassian",
        env={"JIRA_URL": "{absent}", "JIRA_USERNAME": "none", "JIRA_API_TOKEN": "none"},
        calls=_call("jira_get_issue", {"issue_key": "AB-1"}, "Could not connect to Jira", "tool error"),
    ),
    "nixos": Row(
        package="mcp-nixos",
        program="mcp-nixos",
        version=MODERN,
        calls=_call("nix_versions", {"package": "a"}, "Connection refused"),
    ),
    "calculator": Row(
        package="mcp-server-calculator",
        program="mcp-server-calculator",
        calls=_call("calculate", {"expression": "6 * 7"}, "42"),
    ),
    "duckdb": Row(
        package="mcp-server-motherduck",
        program="mcp-server-motherduck",
        args=("--db-path", ":memory:", "--read-write"),
        version=MODERN,
        calls=_call("execute_query", {"sql": "select 6 * 7 as answer"}, "42"),
    ),
    "sqlite": Row(
        package="mcp-server-sqlite",
        program="mcp-server-sqlite",
        args=("--db-path", "{project}/sqlite.db"),
        calls=_call("read_query", {"query": "select 6 * 7 as answer"}, "42"),
    ),
    "shell": Row(
        package="mcp-shell-server",
        program="mcp-shell-server",
        env={"ALLOW_COMMANDS": "echo"},
        calls=_call(
            "shell_execute", {"command": ["echo", "of the test"], "directory": "{project}"}, "of the test"
        ),
    ),
    "mysql": Row(
        package="mysql-mcp-server",
        program="mysql_mcp_server",
        env={
            "MYSQL_HOST": "127.0.0.1",
            "MYSQL_PORT": "9",
            "MYSQL_USER": "none",
            "MYSQL_PASSWORD": "none",
            "MYSQL_DATABASE": "none",
        },
        calls=_call("execute_sql", {"query": "select 1"}, "Connection refused"),
    ),
    "powerpoint": Row(
        package="office-powerpoint-mcp-server",
        program="ppt_mcp_server",
        calls=_call("create_presentation", {}, "Created new presentation"),
    ),
    "word": Row(
        package="office-word-mcp-server",
        program="word_mcp_server",
        version=MODERN,
        calls=_call("create_document", {"filename": "{project}/text.docx"}, "created successfully"),
    ),
    "redis": Row(
        package="redis-mcp-server",
        program="redis-mcp-server",
        args=("--url", "redis://127.0.0.1:9/0"),
        calls=_call("get", {"key": "a"}, "Connection refused"),
    ),
    "wikipedia": Row(
        package="wikipedia-mcp",
        program="wikipedia-mcp",
        version=MODERN,
        calls=_call("search_wikipedia", {"query": "a"}, "no_results"),
    ),
}

QUICK = ("everything", "filesystem", "memory", "git", "time", "fetch", "thinking", "context7")
"""Those that `.ci/run` examines as well."""


def all_servers(machine: Machine, site: str) -> dict[str, Examined]:
    """Every server, by its id; what they work on is in the machine's project folder."""
    (machine.project / "vault" / ".obsidian").mkdir(parents=True, exist_ok=True)
    quick = {
        server_id: Examined(
            server_id=server_id,
            package=_quick_package(server.entry["command"]),
            entry=server.entry,
            version=server.version,
            calls=_call(server.tool, server.arguments, server.answer),
        )
        for server_id, server in eight_servers(machine, site).items()
    }
    assert {*quick} == {*QUICK}
    return quick | {server_id: row.examine(server_id, machine, site) for server_id, row in ROWS.items()}


def _quick_package(command: str) -> str:
    """Name and version of what `tests/tools/install-servers` installed under this command."""
    program = Path(command).name.removeprefix("mcp-").removesuffix("-mcp")
    installed = (NPM / ".installed", TEST_TOOLS / "servers" / ".installed")
    pins = [pin for file in installed for pin in file.read_text(encoding="utf-8").split()]
    return next(pin for pin in pins if program in pin)
