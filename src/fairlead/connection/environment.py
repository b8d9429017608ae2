"""What a server process sees of the host's environment: what programs need to run, and nothing of value."""

import re
from collections.abc import Mapping

_SAFE = re.compile(
    r"""
      HOME | LANG | LANGUAGE | LC_\w+ | LOGNAME | NO_COLOR | PATH | SHELL | TERM | TMPDIR | TZ
    | USER | XDG_\w+ | DISPLAY | WAYLAND_DISPLAY | XAUTHORITY | DOCKER_CONTEXT | DOCKER_HOST
    # Windows
    | APPDATA | COMSPEC | HOMEDRIVE | HOMEPATH | LOCALAPPDATA | PATHEXT | PROCESSOR_ARCHITECTURE | PROGRAMDATA
    | PROGRAMFILES | SYSTEMDRIVE | SYSTEMROOT | TEMP | TMP | USERNAME | USERPROFILE | WINDIR
    # certificates and proxies
    | CURL_CA_BUNDLE | NIX_SSL_CERT_FILE | NODE_EXTRA_CA_CERTS | NODE_USE_SYSTEM_CA | PIP_CERT
    | REQUESTS_CA_BUNDLE | SSL_CERT_DIR | SSL_CERT_FILE | UV_NATIVE_TLS | UV_SYSTEM_CERTS
    | (?: HTTP | HTTPS | ALL | NO )_PROXY | (?: http | https | all | no )_proxy
    # where runtimes and package runners keep their things
    | ASDF_DATA_DIR | ASDF_DIR | BUN_INSTALL | COREPACK_HOME | DENO_DIR | FNM_DIR | GOPATH | JAVA_HOME
    | MISE_DATA_DIR | NIX_LD | NIX_LD_LIBRARY_PATH | NVM_DIR | PNPM_HOME | PYENV_ROOT | VOLTA_HOME
    | PIP_CACHE_DIR | PIPX_HOME | (?: NPM_CONFIG | npm_config )_(?: CACHE | PREFIX | cache | prefix )
    | UV_CACHE_DIR | UV_OFFLINE | UV_PYTHON | UV_PYTHON_INSTALL_DIR | UV_TOOL_BIN_DIR | UV_TOOL_DIR
    """,
    re.VERBOSE,
)

# Where package runners fetch from. Such an address may carry a password, and then it stays here.
_PACKAGE_INDEX = re.compile(
    r"NPM_CONFIG_REGISTRY|npm_config_registry|(?:PIP|UV)_(?:EXTRA_)?INDEX_URL|UV_(?:DEFAULT_)?INDEX"
)


def child_environment(declared: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: what is `declared` for it, over what is safe of the `parent`'s.

    Safe are the variables that say where programs, certificates, proxies and caches are. Anything else, such
    as an API key the host's shell happens to hold, reaches a server only by being declared.
    """
    return {name: value for name, value in parent.items() if _is_safe(name, value)} | dict(declared)


def _is_safe(name: str, value: str) -> bool:
    if value.startswith("()"):
        # A function for a shell, which some shells would run.
        return False
    if _PACKAGE_INDEX.fullmatch(name):
        return "@" not in value
    return _SAFE.fullmatch(name) is not None
