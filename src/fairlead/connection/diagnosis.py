"""Diagnosis of failed servers: find the reason in what a server wrote to stderr.

Programs put the reason anywhere: above a usage text (Go, clap, commander), below it (argparse, click, yargs),
above a stack (Node, Java), below one (Python), or among the lines of a package manager that wraps them.
`diagnose` picks one line as the reason and a bounded excerpt around it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_REASON = 300
"""Characters of a reason: it stands in one line with the name of the server."""
MAX_EXCERPT = 8
"""Lines of an excerpt."""

_EXCERPT_END = 3
_LATEST_LINES = 12
"""How far back, stacks aside, the reason is looked for of a server that has worked: the rest is stale."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Reason why a server failed, as far as its stderr tells it."""

    reason: str | None
    """The line that says why, or None where none looks like it."""
    excerpt: tuple[str, ...]
    """The lines around the reason and the last ones, in order; `…` stands for lines left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _FailureLines:
    """Neighbouring lines about one failure."""

    rank: int
    start: int
    reason: int
    end: int


_EXCEPTION = re.compile(
    r"""(?:Uncaught\s+(?:\(in\s+promise\)\s+)?|Unhandled\s+(?:[Ee]xception|rejection)[.:]?\s+|Fatal\s+|\[)?
        (?:Exception\s+in\s+thread\s+"[^"]*"\s+|error:\s+Uncaught\s+(?:\(in\s+promise\)\s+)?)?
        (?:[\w$]+[.:/]{1,2})*[\w$]*(?:Error|Exception|Exit|Interrupt|Failure|Fault|Rejection)
        (?:\s*\[\w+\])?(?::|$|\s+\[\w+\]:)""",
    re.VERBOSE,
)
_PREFIXED = re.compile(
    r"""(?:[\w./@+-]+(?::\s?\d+)?:\s+)?                    # the program's name, as `prog: error: …`
        (?:npm\s+ERR!|npm\s+error\b|(?:php\s+)?fatal(?:\s+error)?:|error:|error\s+\[\w+\]|panic:|fatal\s+error
          |error\s+response\s+from|error\[\w+\]:|\u00d7\s|thread\s'[^']*'\s(?:\(\d+\)\s)?panicked\s+at
          |\*\*\s\(\w+\)\s|terminate\scalled\s(?:after|without))""",
    re.VERBOSE | re.IGNORECASE,
)
_KNOWN = re.compile(
    r"""cannot\sfind|can't\sfind|can't\slocate|could\snot|couldn't|unable\sto|failed\sto|no\smodule\snamed
       |no\ssuch\s|you\smust\sinstall
       |command\snot\sfound|:\snot\sfound$|'\snot\sfound\s\(|not\srecognized\sas|is\snot\sinstalled|permission\sdenied|EACCES|EPERM
       |EADDRINUSE|already\sin\suse|ECONNREFUSED|connection\srefused|ENOTFOUND|ENOENT|ETIMEDOUT
       |segmentation\sfault|out\sof\smemory|cannot\sconnect|is\srequired|are\srequired|must\sbe\s(?:set|provided)
       |\w\snot\s(?:set|defined|provided|given|specified|configured)\b|missing|invalid|unrecogni[sz]ed|unknown\s(?:option
       |argument|command|flag)|not\sdefined:|not\senough|too\s(?:few|many)\sarguments|expected\sone\sof|unauthori[sz]ed
       |authentication\sfailed|access\sdenied|\(\w*(?:Error|Exception)\)$|unsupported|requires\s(?:node|python)
       |is\snot\sa\sTTY|while\sloading\sshared|\berror\s\w+ing\s|verification\sfailed|does\snot\ssatisfy|no\sspace\sleft""",
    re.VERBOSE | re.IGNORECASE,
)
_LEVEL = re.compile(
    r"""\b(?:ERROR|FATAL|CRITICAL|SEVERE)\b|\blevel=(?:error|fatal|panic)
       |"level":\s*(?:"(?:error|fatal|critical)"|[56]0\b)""",
    re.VERBOSE,
)
_HARMLESS = re.compile(
    r"""\b(?:INFO|WARN|WARNING|DEBUG|TRACE|NOTICE)\b|^npm\s+(?:warn|notice|info)|\blevel=(?:info|warn|debug)
       |"level":\s*(?:"(?:info|warn|warning|debug|trace)"|[1-4]0\b)|^\(node:\d+\)\s|^\(Use\s`|^(?:warning|info|debug)\b
       |Warning:""",
    re.VERBOSE | re.IGNORECASE,
)
_WRAPPER = re.compile(
    r"""ELIFECYCLE|LinkageError\soccurred|lifecycle\sscript|command\sfailed|exit(?:ed)?\s(?:code|status|with)|complete\slog\sof\sthis
       |npm\s(?:ERR!|error)\s*(?:$|\s/|code\s\w+$)|npm\s(?:ERR!|error)\s(?:path|command|A\scomplete|errno|syscall)\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Lines that package managers and task runners add to the failure of a program."""
_HEADING = re.compile(r"(?:crit|fail): [\w.]+\[\d+\]$")
_USAGE = re.compile(r"usage(?:\sof\s[^:]+)?:", re.IGNORECASE)
_TRACEBACK = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\):")
_CHAIN = re.compile(
    r"During handling of|note: |stack backtrace:|The above exception|Caused by:|Require stack:|- /|[{}\]]"
)
_FRAME = re.compile(r'\s+(?:at |File "|\.\.\. \d+ more)|\s*[\^~|]+\s*$|\t|\s*-{3,}|\s*\+-')
_GROUP_EDGE = re.compile(r"\s*(?:[|+]-*\s?)+")
"""The frame that Python prints at the left of an exception group."""


def diagnose(lines: Sequence[str], *, has_worked: bool = False) -> Diagnosis:
    """Pick the reason of a failure from what a server wrote, oldest line first.

    Args:
        lines: What it wrote. The cost is linear in them; the caller bounds their number and length.
        has_worked: The server was ready before. Then the last failure counts, of the last lines; of a server
            that never was, the first counts, because what follows usually follows from it.
    """
    lines = [line for line in lines if line.strip()]
    if has_worked:
        telling = [at for at, line in enumerate(lines) if not _FRAME.match(line)]
        lines = lines[telling[-_LATEST_LINES] :] if len(telling) > _LATEST_LINES else lines
    block = _find_failure_block(lines, latest=has_worked)
    if block is None:
        return Diagnosis(reason=None, excerpt=tuple(lines[-MAX_EXCERPT:]))
    reason = _reason(lines, block)
    if len(reason) > MAX_REASON:
        reason = f"{reason[: MAX_REASON - 1]}…"
    excerpt = () if len(lines) == 1 and reason == lines[0].strip() else _excerpt(lines, block)
    return Diagnosis(reason=reason, excerpt=excerpt)


def _reason(lines: Sequence[str], block: _FailureLines) -> str:
    """The line that says why, with the next one where it goes on there, and with what caused it."""
    reason = _without_edge(lines[block.reason])
    following = _without_edge(lines[block.reason + 1]) if block.reason + 1 < len(lines) else ""
    if _INVALID.search(reason) and block.reason + 2 < len(lines):
        problem = _without_edge(lines[block.reason + 2]).partition(" [")[0]
        return f"{reason}: {following}: {problem}"
    if following and (reason.endswith(":") or following.startswith("what():")):
        reason += f" {following}"
    cause = _root_cause(lines[block.reason + 1 : block.end])
    return f"{reason} (caused by {cause})" if cause and cause not in reason else reason


_INVALID = re.compile(r"\d+ validation errors? for \w+$")
"""pydantic's summary: below it are a field, and what is wrong with it."""


def _root_cause(lines: Sequence[str]) -> str | None:
    """The last cause that is named below an exception: `Caused by: …`, ` ---> …`, or an indented list."""
    cause, is_list = None, False
    for line in lines:
        found = _CAUSE.match(line)
        if found is not None:
            is_list = not found[1]
            cause = found[1] or cause
        elif is_list and line[:1].isspace() and not _FRAME.match(line):
            cause = re.sub(r"^\s*\d+:\s", "", line).strip()
        else:
            is_list = False
    return cause


_CAUSE = re.compile(r"\s*(?:Caused by:|cause:|---> )\s*(.*?)\s*$")


def _find_failure_block(lines: Sequence[str], *, latest: bool) -> _FailureLines | None:
    blocks = list(_blocks(lines))
    if not blocks:
        return _usage_block(lines) or _lone_block(lines)
    highest = max(block.rank for block in blocks)
    best = [block for block in blocks if block.rank == highest]
    return best[-1] if latest else best[0]


def _blocks(lines: Sequence[str]) -> Iterator[_FailureLines]:
    at = 0
    while at < len(lines):
        if _TRACEBACK.match(_without_edge(lines[at])):
            block = _traceback_block(lines, at)
        elif _HEADING.match(lines[at]) and lines[at + 1 : at + 2]:
            block = _find_headed_block(lines, at)
        elif rank := _rank(lines[at]):
            block = _FailureLines(rank=rank, start=at, reason=at, end=_end_of(lines, at, rank))
        else:
            at += 1
            continue
        yield block
        at = block.end


def _rank(line: str) -> int:
    """Likelihood that a line is the reason of a failure: from 0 to 5."""
    bare = _without_edge(line)
    if len(line) - len(line.lstrip()) > 3 and not bare.startswith("\u00d7"):
        return 0
    if _HARMLESS.search(bare):
        return 0
    if _WRAPPER.search(bare):
        return 1
    if bare.startswith("\u00d7"):
        return 5  # the line above it is only a code
    if _EXCEPTION.match(bare) or _PREFIXED.match(bare):
        return 4
    return 3 if _LEVEL.search(bare) else 2 if _KNOWN.search(bare) else 0


def _end_of(lines: Sequence[str], start: int, rank: int) -> int:
    """The end of the lines that belong to the failure at `start`: stack, cause, more errors."""
    end = start + (2 if lines[start].endswith(":") else 1)  # a reason goes on below a colon
    while end < len(lines):
        line, own_rank = lines[end], _rank(lines[end])
        if own_rank > rank or not (own_rank in (1, 3, 4) or line[:1] in " \t" or _CHAIN.match(line)):
            break
        end += 1
    return min(end, len(lines))


def _traceback_block(lines: Sequence[str], start: int) -> _FailureLines:
    """A Python traceback with those it was chained to: the last exception is the one that was not caught."""
    end, reason = start + 1, None
    while end < len(lines):
        line, bare = lines[end], _without_edge(lines[end])
        if _EXCEPTION.match(bare):
            reason = end
        elif not (line[:1] == " " or _TRACEBACK.match(bare) or _CHAIN.match(bare)):
            if reason is not None:
                break
            reason = end  # an exception of a name that does not look like one
        end += 1
    if reason is None:
        return _FailureLines(rank=2, start=start, reason=end - 1, end=end)
    return _FailureLines(rank=4, start=start, reason=reason, end=end)


def _find_headed_block(lines: Sequence[str], start: int) -> _FailureLines:
    """A log entry of .NET: a heading with level and category, and the indented message."""
    end = start + 1
    while end < len(lines) and lines[end][:1].isspace():
        end += 1
    below = range(start + 1, end)
    reason = next((at for at in below if _EXCEPTION.match(lines[at].strip())), start + 1)
    return _FailureLines(rank=4, start=start, reason=min(reason, len(lines) - 1), end=max(end, start + 2))


def _usage_block(lines: Sequence[str]) -> _FailureLines | None:
    """The line above a usage text, which is why it is shown; else the usage itself."""
    usage = next((at for at, line in enumerate(lines) if _USAGE.match(line.strip())), None)
    if usage is None:
        return None
    above = usage - 1
    reason = above if above >= 0 and not _HARMLESS.search(lines[above]) else usage
    return _FailureLines(rank=1, start=reason, reason=reason, end=usage + 2)


def _lone_block(lines: Sequence[str]) -> _FailureLines | None:
    """The only line that is no warning, or the first above lines that all begin alike: a list of options."""
    telling = [at for at, line in enumerate(lines) if not _HARMLESS.search(line)]
    if not telling:
        return None
    first, rest = telling[0], [lines[at] for at in telling[1:]]
    heads = {" " if line[0].isspace() else line.split()[0] for line in rest}
    is_list = len(rest) > 1 and len(heads) == 1 and lines[first].split()[0] not in heads
    if (rest and not is_list) or lines[first][0].isspace():
        return None
    return _FailureLines(rank=1, start=first, reason=first, end=first + 1)


def _excerpt(lines: Sequence[str], block: _FailureLines) -> tuple[str, ...]:
    """The reason with what follows it, and the last lines; without the frames of stacks."""
    candidates = [at for at in range(block.reason, min(block.end, len(lines))) if not _is_frame(lines, at)]
    chosen = {block.reason, *candidates[: MAX_EXCERPT - _EXCERPT_END]}
    room = MAX_EXCERPT - len(chosen)
    last = [at for at in range(len(lines)) if not _is_frame(lines, at) and at not in chosen]
    chosen |= {*last[-room:]} if room > 0 else set()
    shown: list[str] = []
    before: int | None = None
    for at in sorted(chosen):
        if before is not None and at > before + 1:
            shown.append("…")
        shown.append(lines[at])
        before = at
    return tuple(shown)


def _is_frame(lines: Sequence[str], at: int) -> bool:
    """Whether a line belongs to a stack; below that of a frame, Python prints the frame's code."""
    is_code = at > 0 and lines[at][:4].isspace() and _FILE.match(lines[at - 1]) is not None
    return is_code or _FRAME.match(lines[at]) is not None


_FILE = re.compile(r'\s+File "')


def _without_edge(line: str) -> str:
    edge = _GROUP_EDGE.match(line)
    return (line[edge.end() :] if edge else line).strip()
