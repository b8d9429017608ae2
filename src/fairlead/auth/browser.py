"""Opening pages in the user's browser, with the URL as an argument of a program, never through a shell."""

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from anyio import to_thread

from fairlead.net.ssrf import is_loopback_host

START_SECONDS: Final = 3.0
"""A program that runs for longer than this has found a browser to show the page in."""

_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/?#[]@!&*+,=%")
"""The characters of a URL that is opened: none is special to the shells that start some browsers."""


async def open_in_browser(url: str, env: Mapping[str, str] | None = None) -> bool:
    """Open a page in the browser. False where there is none, or the URL needs the user's look first."""
    if not is_openable(url):
        return False
    return await to_thread.run_sync(_open, url, os.environ if env is None else env, abandon_on_cancel=True)


def is_openable(url: str) -> bool:
    """Whether a URL may be opened in a browser: https or local, and without special characters."""
    if not set(url) <= _LEGAL:
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))


def _open(url: str, env: Mapping[str, str]) -> bool:
    if sys.platform == "win32":
        try:
            os.startfile(url)  # noqa: S606 - the one way to a browser there, and it takes no arguments
        except OSError:
            return False
        return True
    return any(_shows(command, env) for command in commands(url, env, sys.platform))


def commands(url: str, env: Mapping[str, str], platform: str) -> Iterator[list[str]]:
    """The installed programs that can open a page, the user's choice first."""
    # In containers and remote editors this is the way to the browser of the machine the user sits at.
    for named in filter(None, env.get("BROWSER", "").split(os.pathsep)):
        try:
            words = shlex.split(named)
        except ValueError:
            continue
        if "%s" not in named:
            words.append("%s")
        yield from _find_command([word.replace("%s", url) for word in words], env)
    if platform == "darwin":
        if not env.get("SSH_CONNECTION"):  # else the page would show on a screen without a user
            yield ["/usr/bin/open", url]
    elif env.get("WSL_DISTRO_NAME"):
        yield from _find_command(["wslview", url], env)
    elif env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"):
        for program in (["xdg-open"], ["gio", "open"], ["x-www-browser"]):
            yield from _find_command([*program, url], env)


def _find_command(command: list[str], env: Mapping[str, str]) -> Iterator[list[str]]:
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is not None:
        yield [program, *command[1:]]


def _shows(command: list[str], env: Mapping[str, str]) -> bool:
    try:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C here is not meant for the browser
        )
    except OSError:
        return False
    try:
        return process.wait(START_SECONDS) == 0
    except subprocess.TimeoutExpired:
        # It is the browser itself. It outlives us, or its exit status must be collected.
        threading.Thread(target=process.wait, name="browser", daemon=True).start()
        return True
