"""What tests of agents and servers need: folders, hosts of their own, servers that misbehave, a clock,
a watchdog for the event loop.

Everything here is public, and used by Fairlead's own tests.
"""

from fairlead.testing.fixtures import FakeClock, Link, open_host, write_tree
from fairlead.testing.scripted import ScriptedServer
from fairlead.testing.watchdog import LoopWatchdog, watch_loop

__all__ = [
    "FakeClock",
    "Link",
    "LoopWatchdog",
    "ScriptedServer",
    "open_host",
    "watch_loop",
    "write_tree",
]
