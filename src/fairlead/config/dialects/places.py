"""Where programs keep their files, by the conventions of each platform. Nothing here looks at a disk."""

from collections.abc import Iterable
from pathlib import Path

from fairlead.config.dialects.dialect import Location, Scope
from fairlead.config.paths import Place


def user(*paths: Path) -> list[Location]:
    """Files of the user."""
    return _locations(paths, "user")


def project(place: Place, *names: str) -> list[Location]:
    """Files of the project, for programs that look in the current folder alone."""
    return _locations((place.cwd / name for name in names), "project")


def upward(place: Place, *names: str) -> list[Location]:
    """Files of the project, for programs that look in the current folder and above; nearest first."""
    folders = (place.cwd, *place.cwd.parents)
    return _locations((folder / name for folder in folders for name in names), "project")


def distinct(*groups: list[Location]) -> list[Location]:
    """All locations in order. A file that is the user's own is not the project's too."""
    everything = [location for group in groups for location in group]
    own = {location.path for location in everything if location.scope == "user"}
    return [location for location in everything if location.scope == "user" or location.path not in own]


def config_home(place: Place) -> Path:
    """The folder for configuration of programs that follow XDG on every Unix."""
    if place.platform == "win32":
        return _roaming(place)
    configured = place.env.get("XDG_CONFIG_HOME", "")
    # The specification wants relative paths ignored.
    return Path(configured) if Path(configured).is_absolute() else place.home / ".config"


def application_data(place: Place) -> Path:
    """The folder for data of desktop applications."""
    if place.platform == "darwin":
        return place.home / "Library" / "Application Support"
    return config_home(place)


def named(place: Place, variable: str) -> list[Path]:
    """The path in that environment variable, if it is set."""
    configured = place.env.get(variable)
    return [place.cwd / configured] if configured else []


def moved(place: Place, variable: str, default: Path) -> Path:
    """The path in that environment variable, else the default."""
    return next(iter(named(place, variable)), default)


def _roaming(place: Place) -> Path:
    configured = place.env.get("APPDATA")
    return Path(configured) if configured else place.home / "AppData" / "Roaming"


def _locations(paths: Iterable[Path], scope: Scope) -> list[Location]:
    return [Location(path=path, scope=scope) for path in paths]
