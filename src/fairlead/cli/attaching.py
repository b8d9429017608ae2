"""Commands that use the gateway which runs already, in place of a host of their own."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fairlead.cli.output import say, warn
from fairlead.config.builtins import workspace
from fairlead.config.load import LoadedConfig
from fairlead.config.sources import place_of
from fairlead.errors import GatewayGone
from fairlead.gateway.running import Running, find, sources_of

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def no_gateway_option(function: FunctionT) -> FunctionT:
    """Add `--no-gateway`: start servers though a gateway has them."""
    return click.option(
        "--no-gateway", is_flag=True, help="Start servers, though a gateway runs that has them."
    )(function)


def gateway_for(loaded: LoadedConfig, *, no_gateway: bool) -> Running | None:
    """The gateway that runs with this configuration and works in this folder, and is wanted; says so."""
    if no_gateway:
        return None
    running = find(os.environ, sources_of(loaded), workspace(place_of(os.environ, Path.cwd())))
    if running is not None:
        say(f"through the gateway at {running.url}")
    return running


def warn_of_gone(gone: GatewayGone) -> None:
    """Say that a gateway could not be asked after all, and what is done instead."""
    warn(f"{gone}; doing it without")
