"""What a server process sees of the host's environment: what programs need to run, and nothing of value."""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

_SAFE = re.compile(
    r"""
      HOME | LANG | LANGUAGE | LC_\w+ | LOGNAME | NO_COLOR | PATH | SHELL | TERM | TMPDIR | TZ
    | USER | XDG_\w+ | DISPLAY | WAYLAND_DISPLAY | XAUTHORITY | DOCKER_CONTEXT | DOCKER_HOST
    # Windows
    | APPDATA | COMSPEC | HOMEDRIVE | HOMEPATH | LOCALAPPDATA | PATHEXT | PROCESSOR_ARCHITECTURE | PROGRAMDATA
    | PROGRAMFILES | SYSTEMDRIVE | SYSTEMROOT | TEMP | TMP | USERNAME | USERPROFILE | WINDIR
    # certificates, and what needs no proxy
    | CURL_CA_BUNDLE | NIX_SSL_CERT_FILE | NODE_EXTRA_CA_CERTS | NODE_USE_SYSTEM_CA | PIP_CERT
    | REQUESTS_CA_BUNDLE | SSL_CERT_DIR | SSL_CERT_FILE | UV_NATIVE_TLS | UV_SYSTEM_CERTS
    | NO_PROXY | no_proxy
    # where runtimes and package runners keep their things
    | ASDF_DATA_DIR | ASDF_DIR | BUN_INSTALL | COREPACK_HOME | DENO_DIR | FNM_DIR | GOPATH | JAVA_HOME
    | MISE_DATA_DIR | NIX_LD | NIX_LD_LIBRARY_PATH | NVM_DIR | PNPM_HOME | PYENV_ROOT | VOLTA_HOME
    | PIP_CACHE_DIR | PIPX_HOME | (?: NPM_CONFIG | npm_config )_(?: CACHE | PREFIX | cache | prefix )
    | UV_CACHE_DIR | UV_OFFLINE | UV_PYTHON | UV_PYTHON_INSTALL_DIR | UV_TOOL_BIN_DIR | UV_TOOL_DIR
    """,
    re.VERBOSE,
)

# Proxies, and where package runners fetch from: URLs, which are passed on only if they carry no credentials.
_URL = re.compile(
    r"""
      (?: HTTP | HTTPS | ALL )_PROXY | (?: http | https | all )_proxy
    | NPM_CONFIG_REGISTRY | npm_config_registry
    | (?: PIP | UV )_(?: EXTRA_ )?INDEX_URL | UV_(?: DEFAULT_ )?INDEX
    """,
    re.VERBOSE,
)
_MAX_DECODINGS = 4


def child_environment(declared: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: what is `declared` for it, over what is safe of the `parent`'s.

    Safe are the variables that say where programs, certificates, proxies and caches are. Anything else, such
    as an API key the host's shell happens to hold or a proxy's password, reaches a server only by being
    declared.
    """
    return {name: value for name, value in parent.items() if _is_safe(name, value)} | dict(declared)


def _is_safe(name: str, value: str) -> bool:
    if value.startswith("()"):
        # A function for a shell, which some shells would run.
        return False
    kind = _kind_of(name)
    return kind == "safe" or (kind == "url" and not _may_hold_credentials(value))


@lru_cache(maxsize=1024)
def _kind_of(name: str) -> Literal["safe", "url", "other"]:
    """What a variable is by its name. Every start asks about the same ones."""
    if _URL.fullmatch(name):
        return "url"
    return "safe" if _SAFE.fullmatch(name) else "other"


def _may_hold_credentials(url: str) -> bool:
    """Is there userinfo in a URL, in whatever form some program may take for it?

    Not parsed: there may be several URLs, no scheme, or an `@` that is encoded. Each `@` counts as userinfo.
    """
    for _ in range(_MAX_DECODINGS):
        url = unicodedata.normalize("NFKC", url)
        if "@" in url:
            return True
        decoded = unquote(url)
        if decoded == url:
            return False
        url = decoded
    return True
