"""The gateway's entry in the files of other agents, in a home of the test's own."""

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from fairlead.config.paths import MachinePaths
from fairlead.config.sources import place_of
from fairlead.errors import ConfigError, ConfigUnwritable
from fairlead.gateway.install import (
    AGENTS,
    FileChange,
    GatewayRoute,
    apply,
    command_route,
    plan_install,
    plan_uninstall,
    render_snippet,
)
from fairlead.gateway.registry import gateway_folder
from fairlead.gateway.service import kept_variables
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

URL = "http://127.0.0.1:8130/mcp"
TOKEN = "s3cret-token"

FILES = {
    "claude": ".claude.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "opencode": ".config/opencode/opencode.json",
    "gemini": ".gemini/settings.json",
}

JSON_TEXTS = {
    "claude": '{\n  "numStartups": 7,\n  "mcpServers": {\n    "time": {"command": "uvx"}\n  }\n}\n',
    "cursor": '{\n\t"mcpServers": {\n\t\t"time": {"command": "uvx"}\n\t}\n}',
    "vscode": '{\n  // mine\n  "inputs": [\n    {\n      "id": "other"\n    }\n  ],\n'
    '  "servers": {\n    "time": {"command": "uvx"}, // keep\n  }\n}\n',
    "opencode": '{\n  "$schema": "https://opencode.ai/config.json",\n  // mine\n'
    '  "mcp": {\n    "time": {"type": "local", "command": ["uvx"]}\n  }\n}\n',
    "gemini": '{"theme": "dark", "mcpServers": {"time": {"command": "uvx"}}}',
}
TOML_TEXT = '# mine\nmodel = "o3"\n\n[mcp_servers.time]\ncommand = "uvx" # keep\n\n[tui]\ntheme = "dark"\n'
TEXTS = {**JSON_TEXTS, "codex": TOML_TEXT}


@pytest.fixture
def place(machine: Machine) -> MachinePaths:
    return place_of(machine.env, machine.project)


@pytest.fixture
def reach(tmp_path: Path) -> GatewayRoute:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return GatewayRoute(url=URL, token=TOKEN, token_file=file)


def write(machine: Machine, agent: str, text: str) -> Path:
    path = machine.home / FILES[agent]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def install(machine: Machine, place: MachinePaths, agent: str, reach: GatewayRoute) -> FileChange:
    change = plan_install(agent, place, reach)
    apply(change, machine.env)
    return change


@pytest.mark.parametrize("agent", AGENTS)
def test_the_entry_goes_in_beside_what_is_there_and_out_without_a_trace(
    machine: Machine, place: MachinePaths, reach: GatewayRoute, agent: str
) -> None:
    path = write(machine, agent, TEXTS[agent])
    change = install(machine, place, agent, reach)
    assert change.path == path
    assert URL in path.read_text()
    assert TOKEN not in path.read_text()
    assert not change.has_token
    for line in TEXTS[agent].splitlines():
        assert line.strip().rstrip("},") in path.read_text()
    apply(plan_uninstall(agent, place), machine.env)
    assert path.read_text() == TEXTS[agent]


@pytest.mark.parametrize("agent", AGENTS)
def test_where_there_is_no_file_one_is_made_that_only_its_owner_reads(
    machine: Machine, place: MachinePaths, reach: GatewayRoute, agent: str
) -> None:
    change = install(machine, place, agent, reach)
    assert change.before is None
    assert stat.S_IMODE(change.path.stat().st_mode) == 0o600
    assert plan_install(agent, place, reach).is_none
    apply(plan_uninstall(agent, place), machine.env)
    assert not change.path.exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_what_was_installed_can_be_imported_back(
    machine: Machine, place: MachinePaths, reach: GatewayRoute, fairlead: Fairlead, agent: str
) -> None:
    install(machine, place, agent, reach)
    outcome = fairlead("import", "--from", agent)
    assert outcome.status == 0, outcome.err
    entry = json.loads(machine.user_file.read_text())["servers"]["fairlead"]
    authorization = entry.pop("headers")["Authorization"]
    assert entry == {"url": URL}
    expected = {
        "vscode": r"file:~/\.config/fairlead/secrets/fairlead\.gateway-token\.[0-9a-f-]+",
        "opencode": re.escape(f"file:{reach.token_file}"),
    }
    assert re.fullmatch(rf"Bearer \$\{{{expected.get(agent, 'FAIRLEAD_TOKEN')}\}}", authorization)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_command_can_be_installed_instead_of_a_url(
    machine: Machine, place: MachinePaths, fairlead: Fairlead, agent: str
) -> None:
    install(
        machine, place, agent, GatewayRoute(command=("fairlead", "gateway", "--stdio", "--bundle", "work"))
    )
    assert fairlead("import", "--from", agent).status == 0
    entry = json.loads(machine.user_file.read_text())["servers"]["fairlead"]
    assert entry == {"command": "fairlead", "args": ["gateway", "--stdio", "--bundle", "work"]}
    apply(plan_uninstall(agent, place), machine.env)
    assert "fairlead" not in (machine.home / FILES[agent]).with_suffix("").name
    assert plan_uninstall(agent, place).is_none


def test_the_old_file_is_kept_where_nobody_else_reads_it(
    machine: Machine, place: MachinePaths, reach: GatewayRoute
) -> None:
    write(machine, "claude", TEXTS["claude"])
    backup = apply(plan_install("claude", place, reach), machine.env)
    assert backup is not None
    assert backup.read_text() == TEXTS["claude"]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


def test_a_file_that_changed_since_it_was_shown_is_left_alone(
    machine: Machine, place: MachinePaths, reach: GatewayRoute
) -> None:
    path = write(machine, "cursor", TEXTS["cursor"])
    change = plan_install("cursor", place, reach)
    path.write_text("{}")
    with pytest.raises(ConfigUnwritable, match="in the meantime"):
        apply(change, machine.env)
    assert path.read_text() == "{}"


def test_an_entry_of_the_same_name_that_is_somebody_elses_stays(
    machine: Machine, place: MachinePaths
) -> None:
    write(machine, "cursor", '{"mcpServers": {"fairlead": {"command": "something"}}}')
    with pytest.raises(ConfigError, match="not what was installed"):
        plan_uninstall("cursor", place)


def test_where_nothing_was_installed_nothing_is_taken_out(machine: Machine, place: MachinePaths) -> None:
    path = write(machine, "codex", TEXTS["codex"])
    assert plan_uninstall("codex", place).is_none
    assert plan_uninstall("gemini", place).is_none
    assert path.read_text() == TEXTS["codex"]


def test_a_question_that_another_server_uses_too_stays(
    machine: Machine, place: MachinePaths, reach: GatewayRoute
) -> None:
    path = write(
        machine, "vscode", '{"servers": {"other": {"url": "http://x.example/${input:gateway-token}"}}}'
    )
    install(machine, place, "vscode", reach)
    path.write_text(f"{path.read_text()}\n")  # edited since, so that the entry is removed
    apply(plan_uninstall("vscode", place), machine.env)
    assert "gateway-token" in json.dumps(json.loads(path.read_text())["inputs"])


def test_the_diff_shows_the_lines_that_come(
    machine: Machine, place: MachinePaths, reach: GatewayRoute
) -> None:
    write(machine, "codex", TEXTS["codex"])
    lines = plan_install("codex", place, reach).diff().splitlines()
    assert "+[mcp_servers.fairlead]" in lines
    assert '+bearer_token_env_var = "FAIRLEAD_TOKEN"' in lines
    assert not any(line.startswith("-") and not line.startswith("---") for line in lines)


def test_what_is_pasted_works_as_it_is(reach: GatewayRoute) -> None:
    assert render_snippet("claude", reach) == (
        f"claude mcp add --transport http fairlead {URL} --header 'Authorization: Bearer {TOKEN}'"
    )
    codex = tomllib.loads(render_snippet("codex", reach))["mcp_servers"]["fairlead"]
    assert codex == {"url": URL, "http_headers": {"Authorization": f"Bearer {TOKEN}"}}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert json.loads(render_snippet("cursor", reach)) == {
        "mcpServers": {"fairlead": {"url": URL, "headers": headers}}
    }
    vscode = {"servers": {"fairlead": {"type": "http", "url": URL, "headers": headers}}}
    assert json.loads(render_snippet("vscode", reach)) == vscode
    opencode = {"mcp": {"fairlead": {"type": "remote", "url": URL, "headers": headers}}}
    assert json.loads(render_snippet("opencode", reach)) == opencode


@pytest.mark.parametrize("agent", AGENTS)
def test_without_a_token_none_is_spoken_of(agent: str) -> None:
    assert "uthorization" not in render_snippet(agent, GatewayRoute(url=URL))


@pytest.mark.parametrize("agent", AGENTS)
def test_uninstalling_gives_back_the_very_bytes(
    machine: Machine, place: MachinePaths, reach: GatewayRoute, agent: str
) -> None:
    json_texts = ["{}", "{ }\n", '{"a":1}', '{\r\n\t"inputs": [],\r\n\t"servers": {}}', '{"mcp":{}}']
    toml_texts = ["", "# mine", 'model = "o3"\r\n\r\n[tui]\r\ntheme = "x"', "[mcp_servers]\n\n\n[other]\n"]
    for content in toml_texts if agent == "codex" else json_texts:
        path = machine.home / FILES[agent]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
        install(machine, place, agent, reach)
        assert path.read_bytes() != content.encode()
        install(
            machine, place, agent, GatewayRoute(command=("fairlead", "gateway", "--stdio"))
        )  # another way to reach it
        apply(plan_uninstall(agent, place), machine.env)
        assert path.read_bytes() == content.encode()


@pytest.mark.parametrize("edit", [False, True])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_byte_order_mark_is_accepted_and_kept(
    machine: Machine, place: MachinePaths, reach: GatewayRoute, agent: str, *, edit: bool
) -> None:
    mark = "\ufeff".encode()
    for content in ("", TEXTS[agent]):
        path = machine.home / FILES[agent]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mark + content.encode())
        install(machine, place, agent, reach)
        assert path.read_bytes().startswith(mark)
        assert path.read_bytes().count(mark) == 1
        assert URL in path.read_text()
        if edit:  # then the entry is removed, rather than the file restored
            path.write_bytes(path.read_bytes() + b"\n")
        apply(plan_uninstall(agent, place), machine.env)
        assert path.read_bytes().startswith(mark)
        assert URL not in path.read_text()
        if not edit:
            assert path.read_bytes() == mark + content.encode()


def test_a_file_that_was_edited_since_keeps_the_edits(
    machine: Machine, place: MachinePaths, reach: GatewayRoute
) -> None:
    path = write(machine, "claude", '{"mcpServers": {}}')
    install(machine, place, "claude", reach)
    path.write_text(path.read_text().replace('{"mcpServers"', '{"mine": true, "mcpServers"'))
    apply(plan_uninstall("claude", place), machine.env)
    assert json.loads(path.read_text()) == {"mine": True, "mcpServers": {}}


@pytest.mark.parametrize(
    "added",
    [
        "# a note at the end\n",
        "\n# what I like\n[profiles.mine]\nmodel = 'x'\n",
        "[mcp_servers.other] # kept\ncommand = 'x'\n# and below\n",
    ],
)
@pytest.mark.parametrize("by_command", [True, False])
def test_comments_below_the_entry_stay_when_it_is_taken_out(
    machine: Machine, place: MachinePaths, reach: GatewayRoute, added: str, *, by_command: bool
) -> None:
    before = "# mine\nmodel = 'o3'\n"
    file = write(machine, "codex", before)
    route = command_route({**machine.env, "PATH": "/bin"}, config=None) if by_command else reach
    apply(plan_install("codex", place, route), machine.env)
    file.write_text(file.read_text() + added)
    apply(plan_uninstall("codex", place), machine.env)
    assert "fairlead" not in file.read_text()
    kept = [line for line in (before + added).splitlines() if line]
    assert [line for line in file.read_text().splitlines() if line] == kept


def test_no_backup_overwrites_another(machine: Machine, place: MachinePaths, reach: GatewayRoute) -> None:
    path = write(machine, "claude", "{}")
    backups: set[Path] = set()
    for number in range(10):
        path.write_text(json.dumps({"number": number}))
        backup = apply(plan_install("claude", place, reach), machine.env)
        assert backup is not None
        backups.add(backup)
    assert sorted(json.loads(backup.read_text())["number"] for backup in backups) == [*range(10)]


COMMAND = GatewayRoute(
    command=("/opt/my apps/fairlead", "gateway", "--stdio", "--start"), environment={"PATH": "/a:/b c"}
)

ODD_JSON = {
    "empty": b"",
    "blank": b" \r\n\t",
    "no final newline": b'{"theme": "dark"}',
    "CRLF": b'{\r\n  "theme": "dark",\r\n  "mcpServers": {\r\n    "x": {"command": "y"}\r\n  }\r\n}\r\n',
    "byte order mark": b'\xef\xbb\xbf{\r\n\t"theme": "dark"\r\n}',
    "comments": b'// mine\n{\n  /* and mine */ "theme": "dark", // here\n}\n// there',
    "one line": b'{"mcpServers":{},"servers":{},"mcp":{}}',
    "trailing spaces": b'{  "theme" :  "dark"  }   \n\n\n',
    "other letters": '{"théme": "dunkel \U0001f319"}'.encode(),
}
ODD_TOML = {
    "empty": b"",
    "blank": b"\n\n",
    "no final newline": b'model = "o3"',
    "CRLF": b'# mine\r\nmodel = "o3"\r\n\r\n[mcp_servers.x]\r\ncommand = "y"\r\n',
    "byte order mark": b'\xef\xbb\xbfmodel = "o3"\r\n',
    "comments": b"# nothing but this",
    "inline tables": b"mcp_servers = {}\nx = {a = 1}\n",
    "dotted": b'mcp_servers.x.command = "y"\n',
    "other letters": '"thème" = "dunkel \U0001f319"\n'.encode(),
}
ODD = [(agent, name) for agent in AGENTS for name in (ODD_TOML if agent == "codex" else ODD_JSON)]


def odd_file(machine: Machine, agent: str, name: str) -> tuple[Path, bytes]:
    content = (ODD_TOML if agent == "codex" else ODD_JSON)[name]
    path = machine.home / FILES[agent]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path, content


@pytest.mark.parametrize(("agent", "name"), ODD)
def test_a_command_goes_in_and_out_of_odd_files_without_a_trace(
    machine: Machine, place: MachinePaths, agent: str, name: str
) -> None:
    path, content = odd_file(machine, agent, name)
    try:
        change = plan_install(agent, place, COMMAND)
    except ConfigError:
        assert path.read_bytes() == content  # a table that cannot be edited is left alone, and said so
        assert (agent, name) == ("codex", "inline tables")
        return
    backup = apply(change, machine.env)
    assert backup is not None
    assert backup.read_bytes() == content
    assert plan_install(agent, place, COMMAND).is_none
    apply(plan_uninstall(agent, place), machine.env)
    assert path.read_bytes() == content
    assert backup.read_bytes() == content
    assert plan_uninstall(agent, place).is_none


@pytest.mark.parametrize("agent", AGENTS)
def test_a_link_stays_a_link_whether_it_leads_to_a_file_or_not(
    machine: Machine, place: MachinePaths, agent: str
) -> None:
    path, content = odd_file(machine, agent, "no final newline")
    target = machine.home / "dotfiles" / path.name
    target.parent.mkdir()
    target.write_bytes(content)
    path.unlink()
    path.symlink_to(target)
    install(machine, place, agent, COMMAND)
    assert path.is_symlink()
    assert target.read_bytes() != content
    apply(plan_uninstall(agent, place), machine.env)
    assert (path.is_symlink(), target.read_bytes()) == (True, content)
    target.unlink()
    if agent == "opencode":  # of the two names that it reads, a link that leads nowhere is none
        return
    install(machine, place, agent, COMMAND)
    assert target.exists()
    apply(plan_uninstall(agent, place), machine.env)
    assert (path.is_symlink(), target.exists()) == (True, False)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_read_only_file_is_left_alone_or_keeps_its_mode(
    machine: Machine, place: MachinePaths, agent: str
) -> None:
    path, content = odd_file(machine, agent, "CRLF")
    path.chmod(0o400)
    change = plan_install(agent, place, COMMAND)
    if os.access(path, os.W_OK):  # as root, who may write everything
        apply(change, machine.env)
        apply(plan_uninstall(agent, place), machine.env)
    else:
        with pytest.raises(ConfigUnwritable, match="may not change"):
            apply(change, machine.env)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (content, 0o400)


@pytest.mark.parametrize("agent", AGENTS)
def test_what_was_edited_and_installed_again_has_no_entry_after_it_is_uninstalled(
    machine: Machine, place: MachinePaths, reach: GatewayRoute, agent: str
) -> None:
    path, _ = odd_file(machine, agent, "no final newline")
    install(machine, place, agent, reach)
    path.write_bytes(path.read_bytes() + b"\n\n")  # as the agent itself might
    install(machine, place, agent, COMMAND)
    apply(plan_uninstall(agent, place), machine.env)
    assert b"fairlead" not in path.read_bytes()
    assert b"gateway" not in path.read_bytes().replace(b"gateway-token", b"")


def test_a_file_whose_backup_is_gone_loses_the_entry_and_nothing_else(
    machine: Machine, place: MachinePaths
) -> None:
    path = write(machine, "cursor", '{"mcpServers": {"x": {"command": "y"}}}')
    backup = apply(plan_install("cursor", place, COMMAND), machine.env)
    assert backup is not None
    backup.unlink()
    apply(plan_uninstall("cursor", place), machine.env)
    assert json.loads(path.read_text()) == {"mcpServers": {"x": {"command": "y"}}}


@pytest.mark.parametrize("agent", AGENTS)
def test_variables_of_a_command_arrive_as_they_are(
    machine: Machine, place: MachinePaths, fairlead: Fairlead, agent: str
) -> None:
    install(machine, place, agent, COMMAND)
    assert fairlead("import", "--from", agent).status == 0
    entry = json.loads(machine.user_file.read_text())["servers"]["fairlead"]
    assert (entry["command"], entry["env"]) == ("/opt/my apps/fairlead", {"PATH": "/a:/b c"})


def test_an_agent_gets_the_variables_that_a_service_gets_and_no_password(machine: Machine) -> None:
    given = {
        "PATH": "/bin",
        "LANG": "de_DE.UTF-8",
        "XDG_DATA_HOME": "/data",
        "FAIRLEAD_VAULT": "file",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "SSL_CERT_FILE": "/ca.pem",
        "NO_PROXY": "localhost",
        "HTTP_PROXY": "http://proxy:3128",
        "OTEL_SERVICE_NAME": "mine",
    }
    secret = {
        "HTTPS_PROXY": "http://me:hunter2@proxy:3128",
        "https_proxy": "me:hunter2@proxy",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://me:hunter2@otel.example",
        "API_KEY": "hunter2",
    }
    env = {"HOME": str(machine.home), **given, **secret}
    assert command_route(env, config=None).environment == given
    assert kept_variables(env) == given


def test_a_configuration_in_a_variable_is_in_no_agents_file(machine: Machine) -> None:
    env = {**machine.env, "FAIRLEAD_CONFIG_JSON": '{"servers": {}}'}
    with pytest.raises(ConfigError, match="does not have FAIRLEAD_CONFIG_JSON"):
        command_route(env, config=None)


def test_installations_for_all_agents_at_once_are_all_remembered(
    machine: Machine, place: MachinePaths
) -> None:
    former = {agent: write(machine, agent, TEXTS[agent]) for agent in AGENTS}
    before = {agent: path.read_bytes() for agent, path in former.items()}
    changes = [plan_install(agent, place, COMMAND) for agent in AGENTS]
    at_once = Barrier(len(changes), timeout=30)

    def write_one(change: FileChange) -> None:
        at_once.wait()
        apply(change, machine.env)

    with ThreadPoolExecutor(len(changes)) as pool:
        list(pool.map(write_one, changes))
    known = json.loads((gateway_folder(machine.env) / "backups" / "installed.json").read_bytes())
    assert sorted(known) == sorted(map(str, former.values()))
    for agent, path in former.items():
        apply(plan_uninstall(agent, place), machine.env)
        assert path.read_bytes() == before[agent]
