"""Hints for lines that servers and package runners write before they end.

Tests follow those that can be followed on one machine. Text of a server never becomes part of a command.
"""

import re
from collections.abc import Sequence

_VARIABLE = re.compile(
    r"""\b(?!ERR_)(?P<long>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b
       |\b(?:environment|env)[ ]var(?:iable)?s?:?[ ]["'`$]+\{?(?P<named>[A-Za-z_][A-Za-z0-9_]*)
       |\b(?P<short>[A-Z][A-Z0-9]{2,})["'`]?[ ](?:(?:is|was)[ ](?:not[ ]set|required|missing)|must[ ]be[ ]set
         |(?:environment|env)[ ]var)""",
    re.VERBOSE,
)
_IS_MISSING = re.compile(
    r"required|missing|not set|unset|must be set|must set|please (?:set|provide|specify)|undefined"
    r"|not (?:found|provided|given|defined|configured)|need|KeyError|no \S+ (?:set|provided)|environment"
    r"|env var",
    re.IGNORECASE,
)
_LINES: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern, re.IGNORECASE), hint)
    for pattern, hint in (
        (
            (
                r"was not found in the package registry|No matching distribution found"
                r"|npm (?:ERR!|error) (?:code E?)?404"
                r"|is not in (?:this|the npm) registry|no such package"
            ),
            "there is no such package: correct its name in `args`",
        ),
        (
            r"No matching version found|there is no version of|npm (?:ERR!|error) (?:code ETARGET|notarget)",
            "there is no such version of the package: correct it in `args`",
        ),
        (
            r"npm (?:ERR!|error) (?:code E?40[13]|40[13] |Incorrect or missing password|need auth)|ENEEDAUTH",
            "the package registry wants a login: run `npm login`, or correct the package's name in `args`",
        ),
        (
            r"Failed to parse: `@",
            "that is the name of an npm package: write `npx` as `command`, and `-y` before it in `args`",
        ),
        (
            r"Failed to spawn: `",
            "there is no such program where it is run: correct its name in `args`, or the folder",
        ),
        (
            r"No `?pyproject\.toml`? found",
            "write `--directory` and the folder of the server as the first two of `args`, or correct `cwd`",
        ),
        (
            r"Could not read package\.json",
            "write the folder with the server's `package.json` as `cwd`",
        ),
        (r"Missing script:", "write the name of a script of its `package.json` in `args`"),
        (
            r"npm (?:ERR!|error) (?:code )?ENOTEMPTY",
            (
                "what npm kept of it is damaged: remove the folder `_npx` in npm's cache,"
                " which `npm config get cache` names, and try again"
            ),
        ),
        (r"Ok to proceed\?", "write `-y` as the first of `args`: else `npx` asks before it installs"),
        (
            r"An executable named .* is not provided by package",
            "write `--from`, the package and one of its commands as `args`",
        ),
        (
            r"could not determine executable to run",
            "write `-p`, the package and one of its commands as `args`",
        ),
        (
            r"current Python version .*does not satisfy",
            "write `--python` and a version that it supports as the first two of `args`",
        ),
        (
            (
                r"EBADENGINE|Unsupported engine|requires (?:node|python|a different python)|Requires-Python"
                r"|UnsupportedClassVersionError|You must install or update \.NET"
                r"|No module named '?tomllib|cannot import name '\w+' from '(?:typing|enum|datetime|asyncio)'"
                r"|operand type\(s\) for \|: 'type'"
                r"|\b(?:fetch|structuredClone|ReadableStream|crypto|File|Headers) is not defined"
            ),
            (
                "install the version of Node.js, Python, Java or .NET that it asks for,"
                " or an older version of the server"
            ),
        ),
        (
            (
                r"invalid peer certificate|SELF_SIGNED_CERT|UNABLE_TO_(?:GET_ISSUER_CERT|VERIFY)"
                r"|unable to get local issuer"
            ),
            (
                "the package registry's certificate is not trusted: set SSL_CERT_FILE (uvx) or "
                "NODE_EXTRA_CA_CERTS (npx) in `env` to a file with your network's certificate authority"
            ),
        ),
        (
            (
                r"(?:Failed to (?:fetch|download)|FetchError|npm (?:ERR!|error) network"
                r"|npm (?:ERR!|error) code (?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT)"
                r"|Could not resolve host|NewConnectionError)"
            ),
            "it cannot be fetched: is this machine online? HTTPS_PROXY sets a proxy",
        ),
        (
            r"No module named '?(?:[\w.]+\.)?__main__|is a package and cannot be directly executed",
            "this package cannot be run with `-m`: name its program or another module in `args`",
        ),
        (
            r"No module named",
            (
                "install the package that has this module into the Python that `command` names, or correct"
                " the name in `args`; a published package is best run as `uvx PACKAGE`"
            ),
        ),
        (
            r"cannot import name|ERR_PACKAGE_PATH_NOT_EXPORTED|does not provide an export named",
            "what is installed does not fit together: install the server again, or another version of it",
        ),
        (
            (
                r"in JSON at position|end of JSON input|is not valid JSON|JSONDecodeError"
                r"|looking for beginning of (?:value|object)"
            ),
            "a JSON file or value that it reads is not valid: correct that, in `args`, `env` or its own file",
        ),
        (
            r"SyntaxError|IndentationError|SyntaxWarning",
            "its code cannot be read: it may want another version of Node.js or Python, or is damaged",
        ),
        (
            (
                r"can't open file|Cannot find module '(?:/|\.{1,2}/|[A-Za-z]:\\)|Module not found .?file://"
                r"|Unable to access jarfile|Can't open perl script|(?:sh|bash)(?:: \d+)?: (?:0: )?cannot open"
                r"|No such file or directory -- |can't find '__main__' module in"
            ),
            "correct the path in `args`; a relative one starts from `cwd`",
        ),
        (
            r"Cannot find (?:module|package) '",
            "what it needs is not installed: run `npm install` in the folder of the server",
        ),
        (
            r"container name .* is already in use",
            "take `--name` and the name out of `args`, or remove the container that has it",
        ),
        (
            r"EADDRINUSE|address already in use|port (?:\d+ )?is (?:already )?(?:in use|taken|allocated)",
            (
                "another program has that port, perhaps another copy of this server: end that, or give the"
                " server another port"
            ),
        ),
        (
            r"Cannot connect to the Docker daemon|error during connect|docker daemon is not running",
            "start Docker, and try again",
        ),
        (
            r"permission denied.*\bdocker\b",
            "let your user run Docker: add it to the group `docker`, and log in to this machine again",
        ),
        (
            r"pull access denied|manifest unknown|repository does not exist|manifest for .* not found",
            "there is no such image, or it needs a login: correct its name in `args`, or run `docker login`",
        ),
        (r"the input device is not a TTY", "take `-t` out of `args`: MCP needs `-i` alone"),
        (
            r"\\r['\u2019\u201d:]|\^M|\$'\\r'",
            "the script has line ends of Windows: save it with those of Unix (LF)",
        ),
        (
            r"\benv: ['\u2018\u201c`][^'\u2019\u201d`\s]+ [^'\u2019\u201d`]*['\u2019\u201d`]: No such file",
            "write `env -S` in the first line of the script: without `-S` all that follows is one name",
        ),
        (
            r"\benv: .*No such file or directory|command not found|: not found$|is not recognized as",
            "a program that it runs is not there: install it, or set `PATH` in `env`",
        ),
        (
            r"cannot execute binary file|Exec format error|wrong ELF class|incompatible architecture",
            "it is built for another machine: install the version for this one",
        ),
        (
            r"error while loading shared libraries|GLIBC_|Library not loaded|cannot open shared object file",
            "a library that it needs is not installed: install that, or a version built for this system",
        ),
        (
            r"Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)",
            (
                "have `ssh` log in there by a key, as there is no terminal to ask at; if an agent keeps it:"
                ' `"env": {"SSH_AUTH_SOCK": "${SSH_AUTH_SOCK}"}`'
            ),
        ),
        (
            r"Host key verification failed",
            "run its `ssh` command once in a terminal, and accept the key of the host",
        ),
        (r"^sudo:", "take `sudo` out: there is no terminal to ask for the password at"),
        (
            r"\bNotCapable\b|run again with the --allow-",
            "write the flag that it names in `args`, before the server",
        ),
        (
            r"permission denied|EACCES|EPERM|Operation not permitted|Read-only file system",
            "check the rights of what it names, and `sandbox` if the entry has one",
        ),
        (
            r"ENOSPC(?!: System limit)|No space left on device|disk quota exceeded",
            "the disk is full, or your share of it: make room there",
        ),
        (
            r"Executable doesn't exist at|playwright install",
            "run `npx playwright install` once in a terminal, which installs the browser that it needs",
        ),
        (
            r"cannot open display|no DISPLAY|missing X server|could not connect to display",
            'it shows windows: `"env": {"DISPLAY": "${DISPLAY}"}` passes on the screen of your desktop',
        ),
        (
            r"database is locked|another (?:instance|copy) .*running|is already running",
            "another copy of it seems to run: end that, or give this one data of its own",
        ),
        (
            r"heap out of memory|out of memory|MemoryError|Cannot allocate memory",
            "it needs more memory than it gets",
        ),
        (
            (
                r"unrecognized arguments?|unrecognized option|unknown (?:option|argument|flag|command)"
                r"|invalid option|the following (?:required )?arguments"
                r"|too (?:few|many) arguments|required argument|^usage\b"
            ),
            "correct `args`: it does not understand them, or misses some",
        ),
        (
            (
                r"(?:password )?authentication failed|Access denied for user|bad credentials|Unauthorized"
                r"|(?:invalid|incorrect|wrong) (?:API )?(?:key|token|password|credentials)|invalid_api_key"
            ),
            "what it logs in with is refused: correct the key, token or password in `env` or `args`",
        ),
        (
            r"value: NotPresent\b",
            "it misses an environment variable: its documentation names it; set it in `env`",
        ),
        (
            (
                r"ECONNREFUSED|connection refused|ENOTFOUND|EAI_AGAIN|getaddrinfo|Name or service not known"
                r"|ETIMEDOUT|network is unreachable"
            ),
            "it cannot reach what it needs: is that running, and is its address in `args` or `env` right?",
        ),
    )
)


_PROMPT = re.compile(
    r"""^\W*(?:please\s)?(?:enter|type|input)\b[^.]*[:?>]\s*$
       |^\W*(?:\w+\s){0,3}(?:password|passphrase|pass\s?code|user\s?name)\b[^.:]{0,60}:\s*$
       |[\[(]y(?:es)?/n(?:o)?[\])]""",
    re.VERBOSE | re.IGNORECASE,
)


def hint_for_prompt(lines: Sequence[str]) -> str | None:
    """The hint for a program that asks for input at a terminal, which it does not have."""
    for line in lines:
        if _PROMPT.search(line[:_MAX_LINE]):
            return (
                "it asks for input, which cannot be typed there: its documentation says how to give it that"
                " in `args` or `env`"
            )
    return None


def hint_for_line(line: str) -> str | None:
    """The hint for what a program wrote, where it is a line that is known."""
    line = line[:_MAX_LINE]
    for pattern, hint in _LINES:
        if pattern.search(line):
            return hint
    variable = _VARIABLE.search(line)
    if variable is not None and _IS_MISSING.search(line):
        name = next(filter(None, variable.groups()))
        return (
            f'set it in `env`: `"env": {{"{name}": "${{{name}}}"}}` passes on that of your shell,'
            " of which a server gets no others"
        )
    return None


_MAX_LINE = 1000
