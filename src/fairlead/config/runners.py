"""Programs that run other code, and what they read by themselves: tables for `launch.py`."""

import os
import re
from collections.abc import Iterable

EXECUTION_VARIABLES = re.compile(
    r"PATH|PATHEXT|IFS|ENV|SHELLOPTS|PS4|(?:LD|DYLD)_\w+|GLIBC_TUNABLES|GCONV_PATH|BASH_ENV|BASH_FUNC_.*"
    r"|ZDOTDIR|NODE_(?:OPTIONS|PATH|EXTRA_CA_CERTS|REPL_\w+|COMPILE_CACHE)|(?:NPM_CONFIG|npm_config)_\w+"
    r"|PYTHON\w*|VIRTUAL_ENV|UV_\w+|PIP_\w+|PERL\w+|RUBY\w+|GEM_(?:HOME|PATH)|BUNDLE_\w+|PHPRC"
    r"|PHP_INI_SCAN_DIR|LUA_(?:PATH|CPATH|INIT)\w*|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS"
    r"|CLASSPATH|DOTNET_\w+|CORECLR_\w+|GIT_\w+|SSH_ASKPASS|EDITOR|VISUAL|PAGER|BROWSER|SHELL|HOME"
    r"|XDG_\w+|DENO_\w+|BUN_\w+|\w*_PROXY|\w*_proxy|DOCKER_(?:HOST|CONTEXT|CONFIG)|COMPOSE_FILE"
    r"|KUBECONFIG|OPENSSL_\w+|SSL_CERT_\w+|\w+_CA_BUNDLE|MAKEFILES|MAKEFLAGS|GNUMAKEFLAGS|CARGO_\w+"
    r"|RUST\w+|GO(?:FLAGS|PATH|ROOT|BIN|ENV|PROXY)"
    r"|(?:YARN|PNPM|COREPACK|VOLTA|NVM|ASDF|PYENV|MISE|RBENV)_\w+|JAVA_(?:HOME|OPTS)"
    r"|(?:MAVEN|GRADLE|ANT|SBT|JRUBY|CLJ|LEIN|KOTLIN)_\w+|PLAYWRIGHT_\w+|PUPPETEER_\w+|ELECTRON_\w+"
    r"|TS_NODE_\w+|R_(?:PROFILE|ENVIRON|LIBS)\w*|JULIA_\w+|ERL_\w+|ELIXIR_ERL_OPTIONS|MIX_\w+"
    r"|COMPOSER\w*|LESSOPEN|MANPAGER|CURL_HOME|AWS_(?:CONFIG|SHARED_CREDENTIALS)_FILE"
    r"|GOOGLE_APPLICATION_CREDENTIALS|CLOUDSDK_\w+|FPATH|PROMPT_COMMAND|PSModulePath|COMPlus_\w+"
    r"|ASPNETCORE_HOSTING\w+|GUILE_LOAD_\w+|TCLLIBPATH|JYTHONPATH|OCAMLPATH|QT_\w*PLUGIN\w*"
    r"|GTK_(?:PATH|MODULES)\w*|GIO_\w+|GST_PLUGIN\w*|ODBC\w+"
)
"""Variables that decide which code runs or which hosts are contacted, for any program."""

SHELL = re.compile(r"(?:sh|ash|bash|dash|zsh|ksh|mksh|fish|pwsh|powershell|cmd)[\d.]*")
LANGUAGE = re.compile(
    r"(?:python|pypy|node|nodejs|ruby|perl|php|lua|luajit|java|tsx|ts-node|rscript|julia|deno|uv)[\d.]*w?|"
    + SHELL.pattern
)
"""Interpreters: they run the first file they are given; the rest is for that file."""
FETCHER = re.compile(r"npx|bunx|pnpx|uvx|pipx|docker|podman")
"""Runners of a package or image by its name; the rest is for that package."""
FETCHES = {"npm": {"exec", "x"}, "pnpm": {"dlx"}, "yarn": {"dlx"}, "bun": {"x"}, "uv": {"tool"}}
"""Subcommands that do the same."""
RUNS_PROJECT = re.compile(
    r"npm|pnpm|yarn|bun|poetry|pdm|hatch|rye|pipenv|g?make|just|task|cargo|go|git|hg|gradlew?|mvn|ant|sbt|rake"
    r"|bundle|ninja|cmake|tox|nox|invoke|mise|direnv|find|fd|xargs|parallel|watchexec|nodemon|dotnet|mix"
    r"|composer|bazel|nix|nix-shell|devbox|turbo|nx|lerna|busybox|docker-compose|systemd-run|script|g?awk|sed|tclsh"
    r"|cljs?|clojure|bb|lein|pixi|dart|flutter|swift|zig|stack|cabal|mill|scala|scala-cli|crystal|nim|iex|elixir"
    r"|flask|gunicorn|celery|pytest|rails|rackup|puma|foreman|honcho|overmind|process-compose|pm2|wrangler|vagrant"
    r"|scons|meson|buck2?|pants|moon|pre-commit|dagger|earthly|skaffold|tilt"
)
"""Programs whose arguments do not name what they run: manifests, aliases and targets of the project do."""
CODE_OPTION = re.compile(
    r"-[A-Za-z]{0,5}[cepE]|-[bBdEiIOqsSuvxlnwaT]*[ceE].*|-r"
    r"|--(?:eval|print|run|test)\b.*|eval|task|repl|/c|-Command"
)
"""Options (before the first file) whose value is code, or a target that a manifest describes."""
CALL_OPTION = re.compile(r"-c|--call|--shell-auto-fallback|--shell-mode")
FOLDER_OPTION = re.compile(
    r"--(?:from|with|with-editable|package|directory|project|prefix|cwd|dir|workspace|extra-pip-args)"
    r"|-[pCw]"
)
"""Options of package runners whose value is a folder with code."""
FLAG = re.compile(r"-[uvxqBIsE]+|--")
"""Options of Python and shells without a value, so that a script may follow."""
CODE_SUFFIXES = (
    *(".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".tsx", ".jsx", ".node", ".wasm"),
    *(".rb", ".lua", ".so", ".class"),
)
"""Suffixes that runtimes add to the name of a file: `node build/index`, `ruby -r./hook`."""
CODE_FILE = re.compile(
    r".+\.(?:[cm]?[jt]sx?|node|py[cdwz]?|rb|p[lm]|php|lua|jar|so|dylib|wasm|exe|bat|cmd|ps1|\w*sh)"
)
EXPANDS = re.compile(r"[$`*?\[\]{}!;&|<>()\n#\\]|~[+-]")
URL = re.compile(r"https?://\S+")
JS = (
    "package.json",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    "bunfig.toml",
    ".pnpmfile.cjs",
    "pnpm-workspace.yaml",
)
PY = ("pyproject.toml", "uv.toml", "uv.lock")
CONTAINERS = ("compose.yaml", "compose.yml", "docker-compose.yml", "Dockerfile")
MANIFESTS = {
    **dict.fromkeys(("npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"), JS),
    **dict.fromkeys(("uv", "uvx", "pipx", "poetry", "pdm", "hatch", "rye"), PY),
    "deno": ("deno.json", "deno.jsonc"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", ".justfile", "Justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "cargo": ("Cargo.toml", ".cargo/config.toml"),
    **dict.fromkeys(("docker", "podman"), CONTAINERS),
    "mise": ("mise.toml", ".mise.toml"),
    "direnv": (".envrc",),
    "node": ("node.config.json",),
    "rscript": (".Rprofile", ".Renviron"),
}
"""Files of the working directory (or a parent, inside the project) that define what such a program runs."""
VERSION_FILES = (
    *(
        ".tool-versions",
        "mise.toml",
        ".mise.toml",
        ".python-version",
        ".python-versions",
        ".node-version",
        ".nvmrc",
    ),
    *(".ruby-version", ".java-version"),
)
"""Files by which version managers, and `uv`, choose the interpreter that a name stands for."""
PACKAGE = (
    *("package.json", "__main__.py", "pyproject.toml", "setup.py", "deno.json"),
    *(f"index{suffix}" for suffix in (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".tsx", ".jsx")),
)
SETTINGS_OPTION = re.compile(
    r"--(?:with-)?requirements?(?:-file)?|--(?:build-)?constraints?|--overrides?|--env-file(?:-if-exists)?"
    r"|--config(?:-file)?|--(?:init|rc)-?file|-F"
)
"""Options whose value decides what runs, even if its name is that of data: `--with-requirements list.txt`."""
SHELL_BUILTINS = frozenset({"cd", "exec", "eval", "source", "."})
"""First words of a line for a shell that are no programs."""
MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
"""A module of Python, with or without a name in it: `uvicorn app.server:app`, `FLASK_APP=server`."""
INSTALLED = ("node_modules/.bin", ".venv/bin", "venv/bin", ".venv/Scripts")
INTERPRETERS = (".venv/bin/python", ".venv/bin/python3")
"""What `uv run` executes a script with."""
_ELSEWHERE = re.compile(
    r"docker|podman|nerdctl|ssh|mosh|kubectl|oc|wsl(?:\.exe)?|lxc|incus|multipass|limactl|flatpak|toolbox|distrobox"
    r"|systemd-nspawn|chroot|nsenter|vagrant|devcontainer"
)


def runs_elsewhere(argv: Iterable[str]) -> bool:
    """Whether paths mean other files to the program of a command line: in a container, by `ssh`."""
    return any(
        _ELSEWHERE.fullmatch(os.path.basename(word)) for argument in argv for word in argument.split()[:1]
    )
