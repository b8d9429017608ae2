"""What tests of agents and servers need: folders, hosts of their own, servers that misbehave, a clock.

Everything here is public, and used by Fairlead's own tests.
"""

from fairlead.testing.clock import FakeClock
from fairlead.testing.hosts import open_host
from fairlead.testing.scripted import ScriptedServer
from fairlead.testing.trees import Link, write_tree

__all__ = ["FakeClock", "Link", "ScriptedServer", "open_host", "write_tree"]
