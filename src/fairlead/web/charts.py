"""Charts as SVG, drawn here: each has a title, a description in words, and a table with its numbers."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from fairlead.web.call_history import CallCount, CallSummary
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import plural, table

WIDTH: Final = 480
HEIGHT: Final = 170
_LEFT: Final = 46
_BOTTOM: Final = 20
_TOP: Final = 8
_FATES: Final = (("ok", "ok"), ("failed", "failed"), ("refused", "refused"))
PERCENTILES: Final = (50, 95, 99)


def duration(seconds: float | None) -> str:
    """A duration as text, such as `1.2 s`."""
    if seconds is None:
        return "-"
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 99.5 else f"{seconds / 60:.0f} min"


def calls_chart(found: CallSummary, *, key: str) -> Html:
    """Chart of the number of calls over time: bars of those that worked, failed and were refused."""
    most = _nice(max(4, *(each.total for each in found.buckets)))
    bars: list[Html] = []
    step = (WIDTH - _LEFT) / len(found.buckets)
    for index, each in enumerate(found.buckets):
        height = 0.0
        for fate, number in (("ok", each.ok), ("failed", each.failed), ("refused", each.refused)):
            if number:
                size = max(number / most * _plot_height(), 1.5)
                bars.append(_bar(_LEFT + index * step, height, step, size, fate))
                height += size
    every = found.all
    words = (
        f"{plural(every.total, 'call')}: {every.ok:,} ok, {every.failed:,} failed, {every.refused:,} refused."
    )
    numbers = [
        (_clock(found, index), f"{each.ok:,}", f"{each.failed:,}", f"{each.refused:,}")
        for index, each in enumerate(found.buckets)
        if each.total
    ]
    legend = [(_swatch(kind), name) for kind, name in _FATES]
    chart = _svg(key, "Calls by time", words, _axes(found, f"{most:,.0f}", f"{most / 2:,.0f}"), bars)
    return _figure("Calls", legend, chart, key, ("Time", "Ok", "Failed", "Refused"), numbers)


def latency_chart(found: CallSummary, *, key: str) -> Html:
    """Chart of latencies over time: the 50th, 95th and 99th percentile."""
    points = {percent: [each.percentile(percent) for each in found.buckets] for percent in PERCENTILES}
    most = _nice(max((value for line in points.values() for value in line if value), default=0.001))
    lines = [tag("path", d=_path(values, most), class_=f"p{percent}") for percent, values in points.items()]
    # The lowest last, so that it is seen where they are equal.
    dots = [dot for percent in reversed(PERCENTILES) for dot in _dots(points[percent], most, f"p{percent}")]
    middle = [f"{percent} % within {duration(found.all.percentile(percent))}" for percent in PERCENTILES]
    words = f"{', '.join(middle)}." if found.all.seconds else "No call was sent."
    numbers = [
        (_clock(found, index), *(duration(points[percent][index]) for percent in PERCENTILES))
        for index, each in enumerate(found.buckets)
        if each.seconds
    ]
    legend = [(_dash(f"p{percent}"), f"p{percent}") for percent in PERCENTILES]
    axes = _axes(found, duration(most), duration(most / 2))
    chart = _svg(key, "Latency by time", words, axes, [*lines, *dots])
    columns = ("Time", *(f"p{percent}" for percent in PERCENTILES))
    return _figure("Latency", legend, chart, key, columns, numbers)


def share_bar(count: CallCount, most: int) -> Html:
    """Bar for a row of a table: the number of calls, and the share that did not work."""
    parts: list[Html] = []
    left = 0.0
    for fate, number in (("ok", count.ok), ("failed", count.failed), ("refused", count.refused)):
        width = 100 * number / (most or 1)
        if number:
            parts.append(
                tag("rect", x=f"{left:.1f}", y=0, width=f"{max(width, 1):.1f}", height=8, class_=fate)
            )
        left += width
    return _small("0 0 100 8", parts)


def time_bar(seconds: float | None, most: float) -> Html | None:
    """Bar for a call's latency, relative to the slowest."""
    if not seconds or not most:
        return None
    bar = tag("rect", x=0, y=0, width=f"{max(100 * seconds / most, 1):.1f}", height=6, rx=2, class_="ok")
    return _small("0 0 100 6", [bar])


def _small(box: str, marks: Sequence[Html]) -> Html:
    """A drawing within a line, which says nothing that the line does not say in numbers."""
    return tag("svg", marks, viewBox=box, class_="chart bar", preserveAspectRatio="none", aria_hidden="true")


def _plot_height() -> float:
    return HEIGHT - _BOTTOM - _TOP


def _bar(left: float, above: float, step: float, size: float, kind: str) -> Html:
    top = HEIGHT - _BOTTOM - above - size
    gap = min(2.0, step / 4)
    return tag(
        "rect",
        x=f"{left + gap / 2:.1f}",
        y=f"{top:.1f}",
        width=f"{step - gap:.1f}",
        height=f"{size:.1f}",
        class_=kind,
    )


def _path(values: Sequence[float | None], most: float) -> str:
    """A line through the values. Where there is none, it is interrupted."""
    drawn: list[str] = []
    is_down = False
    for index, value in enumerate(values):
        if value is None:
            is_down = False
            continue
        x, y = _place(index, value, len(values), most)
        drawn.append(f"{'L' if is_down else 'M'}{x:.1f} {y:.1f}")
        is_down = True
    return "".join(drawn) or "M0 0"


def _dots(values: Sequence[float | None], most: float, kind: str) -> list[Html]:
    """A dot for each value without neighbours, of which no line could be seen."""
    alone = [
        (index, value)
        for index, value in enumerate(values)
        if value is not None
        and not any(
            each is not None for each in (*values[max(0, index - 1) : index], *values[index + 1 : index + 2])
        )
    ]
    places = [_place(index, value, len(values), most) for index, value in alone]
    return [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3.5", class_=kind) for x, y in places]


def _place(index: int, value: float, count: int, most: float) -> tuple[float, float]:
    step = (WIDTH - _LEFT) / count
    return _LEFT + (index + 0.5) * step, HEIGHT - _BOTTOM - value / most * _plot_height()


def _axes(found: CallSummary, top: str, middle: str) -> Child:
    base = HEIGHT - _BOTTOM
    heights = ((base, "0"), (base - _plot_height() / 2, middle), (base - _plot_height(), top))
    lines = [
        (
            tag("line", x1=_LEFT, x2=WIDTH, y1=f"{y:.1f}", y2=f"{y:.1f}"),
            tag("text", label, x=_LEFT - 7, y=f"{y + 4:.1f}", text_anchor="end"),
        )
        for y, label in heights
    ]
    count = len(found.buckets)
    places = ((0, _LEFT, "start"), (count // 2, (WIDTH + _LEFT) // 2, "middle"), (count, WIDTH, "end"))
    times = [
        tag("text", _clock(found, index), x=x, y=HEIGHT - 4, text_anchor=anchor)
        for index, x, anchor in places
    ]
    return (lines, times)


def _clock(found: CallSummary, index: int) -> str:
    then = datetime.fromtimestamp(found.since + index * found.bucket_seconds).astimezone()
    return f"{then:%H:%M:%S}" if found.bucket_seconds < 60 else f"{then:%H:%M}"


def _svg(key: str, title: str, words: str, axes: Child, marks: Sequence[Html]) -> Html:
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", words, id=f"{key}-words"),
        axes,
        marks,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="chart",
        role="img",
        aria_labelledby=f"{key}-title {key}-words",
    )


def _figure(
    title: str,
    legend: Sequence[tuple[Html, str]],
    chart: Html,
    key: str,
    columns: Sequence[str],
    numbers: Sequence[Sequence[str]],
) -> Html:
    names = [tag("span", sign, name) for sign, name in legend]
    caption = tag("figcaption", tag("span", title), tag("span", names, class_="key"))
    shown = table(f"{title} by time", columns, numbers) if numbers else tag("p", "None in this time.")
    alternative = tag("details", tag("summary", "As a table"), shown, id=f"{key}-table")
    return tag("figure", caption, chart, alternative, class_="card")


def _swatch(kind: str) -> Html:
    return tag(
        "svg",
        tag("rect", width=14, height=9, rx=2, class_=kind),
        viewBox="0 0 14 9",
        class_="chart",
        aria_hidden="true",
    )


def _dash(kind: str) -> Html:
    return tag(
        "svg", tag("path", d="M0 4.5h14", class_=kind), viewBox="0 0 14 9", class_="chart", aria_hidden="true"
    )


def _nice(value: float) -> float:
    """The next number at or above `value` that is easy to read: 1, 2, 4, 6 or 10 of some unit."""
    unit = 10 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 4, 6, 10, 20) if step * unit >= value * 0.999)
