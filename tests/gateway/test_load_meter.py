"""What a process tells of its load: of the last minute and the last seconds, not since its start."""

import sys

import pytest

from fairlead.gateway.load_meter import LoadMeter


class Clocks:
    """The time, and the processor time, as a test sets them."""

    now = 100.0
    cpu = 5.0


def test_requests_count_for_a_minute_and_processor_time_for_seconds() -> None:
    clocks = Clocks()
    meter = LoadMeter("worker 1", clock=lambda: clocks.now, cpu_clock=lambda: clocks.cpu)
    assert (meter.measure().requests_in_minute, meter.measure().cpu_percent) == (0, 0.0)
    meter.ended += 30
    for _ in range(20):  # busy for half of thirty seconds
        clocks.now += 1.5
        clocks.cpu += 0.75
        meter.measure()
    found = meter.measure()
    assert (found.name, found.requests_in_minute, found.cpu_percent) == ("worker 1", 30, 50.0)
    for _ in range(30):  # then idle
        clocks.now += 1.5
        meter.measure()
    found = meter.measure()
    assert (found.requests_in_minute, found.cpu_percent) == (0, 0.0)


def test_what_others_know_is_asked_for() -> None:
    meter = LoadMeter()
    meter.count_connections = lambda: 4
    meter.has_required = lambda: False
    found = meter.measure(["a", "b"])
    assert (found.connections, found.is_ready, found.servers) == (4, False, ("a", "b"))
    assert found.name


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc")
def test_memory_is_that_of_this_process() -> None:
    found = LoadMeter().measure().memory_bytes
    assert found is not None
    assert found > 10 * 1024 * 1024
