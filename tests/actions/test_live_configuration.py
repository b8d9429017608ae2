"""The configuration of a program that runs for long: what makes it read the files again."""

import json

import anyio

from fairlead.actions.live_configuration import LiveConfiguration
from fairlead.config.load import LoadedConfig
from tests.conftest import Machine

SECONDS = 60


async def test_an_edited_or_new_file_of_an_extension_counts_as_a_change(machine: Machine) -> None:
    folder = machine.home / "tools"
    folder.mkdir()
    (folder / "a.py").write_text("1")
    machine.write_user(json.dumps({"extensions": [str(folder)]}))
    taken: list[str] = []
    is_taken = anyio.Event()

    async def take(loaded: LoadedConfig) -> None:
        taken.append(loaded.servers["tools"].files_stamp)
        is_taken.set()

    live = LiveConfiguration(machine.load(), machine.load, take)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live.watch)
            for name in ("a.py", "b.py"):
                is_taken = anyio.Event()
                (folder / name).write_text("other")
                await is_taken.wait()
            tasks.cancel_scope.cancel()
    assert len({*taken}) == len(taken) == 2
