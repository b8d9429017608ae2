"""Every benchmark still loads: a rename in the source has to reach them too."""

import importlib
import pkgutil

import benchmarks
import pytest


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(benchmarks.__path__)])
def test_a_benchmark_can_be_loaded_and_says_what_it_measures(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")

    assert module.__doc__
