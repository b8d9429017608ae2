"""Test support for agents and servers: isolated hosts, scripted servers, folders, a clock, a loop watchdog.

Everything here is public, and used by Fairlead's own tests.
"""

from fairlead.testing.fixtures import FakeClock, Link, Tree, open_host, write_tree
from fairlead.testing.scripted import ScriptedServer
from fairlead.testing.watchdog import LoopWatchdog, watch_loop

__all__ = [
    "FakeClock",
    "Link",
    "LoopWatchdog",
    "ScriptedServer",
    "Tree",
    "open_host",
    "watch_loop",
    "write_tree",
]
