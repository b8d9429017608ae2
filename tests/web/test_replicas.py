"""The page of replicas: one process says so, several are listed with what each has to do."""

import json

import anyio

from fairlead.actions.replicas import read_replicas
from fairlead.gateway.cluster.replicas import ReplicaDetails, ReplicaDirectory, ReplicaLoad
from tests.conftest import Machine
from tests.web.support import TOKEN, dashboard

SERVERS = {"files": {"command": "no-such-program", "approval": "allow"}}


async def test_one_process_says_how_to_have_several(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        page = await client.get("/replicas")
        assert page.status == 200
        assert "This gateway is one process." in page.text
        assert "gateway --workers auto" in page.text
        assert 'id="to-Replicas"' not in page.text


async def test_replicas_are_listed_with_load_version_and_state(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, anyio.create_task_group() as tasks:
        store = board.host.store
        assert store is not None
        busy = ReplicaDetails(
            name="machine-a",
            pid=4711,
            connections=9,
            requests_in_minute=1234,
            cpu_percent=41.5,
            memory_bytes=200 * 1024 * 1024,
            servers=("files", "<b>elsewhere</b>"),
        )
        load = ReplicaLoad(sessions=7, calls=3, details=busy)
        own = ReplicaDirectory(store, address="http://10.0.0.1:8130")
        other = ReplicaDirectory(store, address="http://10.0.0.2:8130", load=lambda: load)
        board.panel.directory = own
        own.on_change = board.panel.note_change
        await tasks.start(own.run)
        async with board.visited() as client, client.stream() as lines:
            assert 'id="to-Replicas"' in (await client.get("/replicas")).text
            await tasks.start(other.run)
            async for line in lines:  # open pages are told of one that came
                if line == "event: changed":
                    break
            page = await client.sees("/replicas", "machine-a")
            for said in (
                "http://10.0.0.1:8130",
                "answers this page",
                "process 4711",
                "3 now",
                "1,234 in a minute",
                "7 sessions",
                "9 connections",
                "41.5 % of a core",
                "200 MB",
                "2 of 2",
            ):
                assert said in page.text, said
            assert f'href="{client.base}/servers/files"' in page.text
            assert "<b>elsewhere" not in page.text
            assert page.text.count("answers this page") == 1
            await other.drain()
            await client.sees("/replicas", "takes no new sessions")

            # Programs get the same.
            headers = {"Authorization": f"Bearer {TOKEN}"}
            said = await client.get("/api/status", **headers)
            found = read_replicas(json.loads(said.text)["replicas"])
            assert [(each.is_asked, each.condition) for each in found] == [
                (True, "ready"),
                (False, "draining"),
            ]
            assert (found[1].servers, found[1].requests) == (busy.servers, 3)
        tasks.cancel_scope.cancel()


async def test_replicas_are_for_administrators(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        assert (await client.get("/replicas")).status in (302, 303, 401)
