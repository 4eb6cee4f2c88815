"""How late jobs began, drawn: over the time of the run, and how many were how late."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, pairwise
from math import ceil, floor, log10
from operator import itemgetter
from textwrap import wrap
from typing import Final

from rota.bench.figures import RANKS, percentile

SLICES: Final = 240
BINS_PER_DECADE: Final = 5
# Milliseconds. What is less, or early, counts as this: a logarithm has to begin somewhere.
LEAST: Final = 0.1

# Pixels, of a panel: where its plot begins and ends, and where the next one begins.
LEFT, RIGHT, TOP, BASE, NEXT = 80, 920, 22, 260, 346
# What a label takes: a line, and at most so much a character, there being no font to ask.
LINE, GLYPH = 17, 6.6

STYLE: Final = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #59636e }
text { font-variant-numeric: tabular-nums }
.title { font-size: 21px; font-weight: 650; fill: #1f2328 }
.heading { font-size: 14px; font-weight: 600; fill: #1f2328 }
.note { font-size: 13px } .label { fill: #1f2328 }
.end { text-anchor: end } .middle { text-anchor: middle }
.paper { fill: #ffffff } .grid { stroke: #e4e8ec } .axis { stroke: #8c959f }
.band { fill: #2f6fde; fill-opacity: .14 } .bar { fill: #a3bff2 } .bar:hover { fill: #7ea4ec }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round } .mark { stroke-width: 1.4; stroke-dasharray: 5 3 }
.p50 { stroke: #1f5fd0 } .p99 { stroke: #8250df } .p999 { stroke: #bf3989 } .max { stroke: #d9611c }
@media (prefers-color-scheme: dark) {
text { fill: #9198a1 } .title, .heading, .label { fill: #f0f6fc }
.paper { fill: #0d1117 } .grid { stroke: #262c34 } .axis { stroke: #656c76 } .band { fill: #6ea8fe }
.bar { fill: #2c4a80 } .bar:hover { fill: #3a62a8 }
.p50 { stroke: #6ea8fe } .p99 { stroke: #b99bf8 } .p999 { stroke: #f778ba } .max { stroke: #ff9b52 }
}
"""


def lateness_svg(title: str, points: Sequence[tuple[float, float]], *, notes: Sequence[str] = ()) -> str:
    """A picture of points, one a job: when it was due, in seconds of the run, and how late it was, in milliseconds."""
    head = [("title", 28, line) for line in wrap(title, 80)]
    head += [("note", 21, line) for note in notes for line in wrap(note, 136)]
    parts, bottom = [], 20
    for kind, height, line in head:
        bottom += height
        parts.append(_text(28, bottom, line, kind))
    bottom += 44
    for panel in _panels(points):
        parts += [f'<g transform="translate(0 {bottom})">', *panel, "</g>"]
        bottom += NEXT if points else 44
    size = f'viewBox="0 0 1000 {bottom - 18}" width="1000" height="{bottom - 18}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{_escaped(title)}</title>\n'
        f'<style>{STYLE}</style>\n<rect class="paper" width="100%" height="100%"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panels(points: Sequence[tuple[float, float]]) -> list[list[str]]:
    if not points:
        return [[_heading("No jobs were measured")]]
    slices = _sliced(points)
    # To sort a few runs that are in order is to merge them.
    return [_over_time(slices), _histogram(sorted(chain.from_iterable(slice.ordered for slice in slices)))]


# Over time


@dataclass(frozen=True, slots=True)
class Slice:
    """The lateness, in ascending order, of the jobs that were due from `begin` to before `end`."""

    begin: float
    end: float
    ordered: list[float]


def _sliced(points: Sequence[tuple[float, float]]) -> list[Slice]:
    """Only those with jobs in them."""
    due = itemgetter(0)
    span = max(1.0, max(map(due, points)) - min(0.0, min(map(due, points))))
    # Few jobs make wide slices: the median of one says little.
    width = _round_up(span / min(SLICES, max(12, len(points) // 10)))
    lateness = defaultdict[int, list[float]](list)
    for at, late in points:
        lateness[floor(at / width)].append(late)
    return [Slice(n * width, (n + 1) * width, sorted(lateness[n])) for n in sorted(lateness)]


def _over_time(slices: list[Slice]) -> list[str]:
    lines = {name: [percentile(slice.ordered, name) for slice in slices] for name in ("max", "p99", "p50")}
    lowest, highest = max(LEAST, min(lines["p50"])), max(LEAST, *lines["max"])
    x = Scale(min(0.0, slices[0].begin), slices[-1].end, LEFT, RIGHT)
    y = Scale(max(LEAST, _round_down(lowest / 1.1)), _round_up(highest * 1.1), BASE, TOP, log=True)
    spans = [(x(slice.begin), x(slice.end)) for slice in slices]
    heights = {name: [y(late) for late in values] for name, values in lines.items()}
    each = _number(slices[0].end - slices[0].begin)
    return [
        _heading("Lateness over time", f"of the jobs due in each {each} s; log scale"),
        *_legend(),
        *_rows(y, ((late, "≤ " * (late <= LEAST) + _duration(late)) for late in _log_ticks(y, room=60))),
        *_columns(x, y, ((at, f"{_number(at)} s") for at in _ticks(x))),
        _text((LEFT + RIGHT) / 2, BASE + 38, "when the jobs were due, since the run began", "middle"),
        f'<path class="band" d="{_band(spans, heights["p50"], heights["p99"])}"/>',
        *(f'<path class="line {name}" d="{_steps(spans, heights[name])}"/>' for name in heights),
    ]


def _legend() -> Iterator[str]:
    for place, name in enumerate(("p50", "p99", "max")):
        left = RIGHT - 186 + 66 * place
        yield f'<path class="line {name}" d="M{left} -4h20"/>'
        yield _text(left + 26, 0, name)


def _steps(spans: Sequence[tuple[float, float]], heights: Sequence[float]) -> str:
    """A line as of stairs, broken where there were no jobs."""
    drawn, reached = "", -1.0
    for (left, right), height in zip(spans, heights, strict=True):
        drawn += f"V{height:.1f}H{right:.1f}" if left == reached else f"M{left:.1f} {height:.1f}H{right:.1f}"
        reached = right
    return drawn


def _band(spans: Sequence[tuple[float, float]], lower: Sequence[float], upper: Sequence[float]) -> str:
    boxes = zip(spans, lower, upper, strict=True)
    return "".join(f"M{left:.1f} {low:.1f}V{high:.1f}H{right:.1f}V{low:.1f}" for (left, right), low, high in boxes)


# How many were how late


def _histogram(ordered: list[float]) -> list[str]:
    first, last = _bin(ordered[0]) - 1, _bin(ordered[-1]) + 1
    # A few bins would be mostly bar: there are twelve at least, and as much air on the left as on the right.
    first = max(-1, min(first, (first + last) // 2 - 5))
    edges = [_edge(n) for n in range(first, max(last + 1, first + 12) + 1)]
    # All that is less than the second edge is in the first bin, also what was early.
    counts = [b - a for a, b in pairwise([0, *(bisect_left(ordered, edge) for edge in edges[1:])])]
    x = Scale(edges[0], edges[-1], LEFT, RIGHT, log=True)
    marks = _marks(ordered, x)
    y = Scale(0.5, max(counts) * 1.4, BASE, TOP + LINE * (1 + max(mark.row for mark in marks)), log=True)
    late = [(late, _duration(late)) for late in _log_ticks(x, room=180) if late >= LEAST]
    return [
        _heading("How many were how late", f"of {_jobs(len(ordered))}; log scales"),
        *_rows(y, ((count, f"{count:,.0f}") for count in _log_ticks(y, room=100) if count >= 1)),
        *_columns(x, y, [(edges[0], "0"), *late] if first < 0 and x(LEAST) - LEFT > 30 else late),
        *_shares(y, len(ordered)),
        _text((LEFT + RIGHT) / 2, BASE + 38, "lateness", "middle"),
        *(_bar(x, y, span, count, len(ordered)) for span, count in zip(pairwise(edges), counts, strict=True) if count),
        *(mark.drawn(y) for mark in marks),
    ]


def _bin(late: float) -> int:
    return floor(BINS_PER_DECADE * log10(late / LEAST)) if late >= LEAST else -1


def _edge(n: int) -> float:
    return float(LEAST * 10 ** (n / BINS_PER_DECADE))


def _bar(x: Scale, y: Scale, span: tuple[float, float], count: int, total: int) -> str:
    left, right, top = x(span[0]) + 1, x(span[1]) - 1, y(count)
    which = f"{_duration(span[0])} to {_duration(span[1])}" if span[0] >= LEAST else f"less than {_duration(span[1])}"
    told = f"<title>{which}: {_jobs(count)}, {100 * count / total:.3g} %</title>"
    box = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{BASE - top:.1f}"'
    return f'<rect class="bar" {box}>{told}</rect>'


def _shares(y: Scale, total: int) -> Iterator[str]:
    """The axis on the right: the same heights in percent."""
    for power in range(ceil(log10(1 / total)), 1):
        if total * 10.0**power <= y.high:
            yield _text(RIGHT + 8, y(total * 10.0**power) + 4, f"{100 * 10.0**power:g} %")


@dataclass(frozen=True, slots=True)
class Mark:
    name: str
    label: str
    x: float
    row: int

    def drawn(self, y: Scale) -> str:
        top = y.end - LINE * self.row - 14
        line = f'<path class="mark {self.name.replace(".", "")}" d="M{self.x:.1f} {BASE}V{top:.1f}"/>'
        return line + _text(self.x + 5, top + 10, self.label, "label")


def _marks(ordered: list[float], x: Scale) -> list[Mark]:
    """From the right, each a row above those that its label reaches over: no line goes through a label."""
    marks: list[Mark] = []
    for name in reversed(RANKS):
        late = percentile(ordered, name)
        label = f"{name} {_duration(late)}"
        reach = x(late) + GLYPH * len(label) + 12
        marks.append(Mark(name, label, x(late), 1 + max((mark.row for mark in marks if mark.x < reach), default=-1)))
    return marks


# Axes and text


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        return self.begin + (self.end - self.begin) * self._share(max(self.low, value))

    def _share(self, value: float) -> float:
        if self.log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def _ticks(scale: Scale) -> list[float]:
    step = _round_up((scale.high - scale.low) / 12)
    return [n * step for n in range(ceil(scale.low / step), floor(scale.high / step) + 1)]


def _log_ticks(scale: Scale, *, room: float) -> list[float]:
    """1, 2, 5, 10 when a factor of ten has so many pixels, or else 1, 10, 100."""
    powers = range(floor(log10(scale.low)), ceil(log10(scale.high)) + 1)
    per_decade = abs(scale.end - scale.begin) / log10(scale.high / scale.low)
    ticks = (digit * 10.0**power for power in powers for digit in ((1, 2, 5) if per_decade >= room else (1,)))
    return [tick for tick in ticks if scale.low <= tick * 1.0001 and tick <= scale.high * 1.0001]


def _round_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(value))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= value * 0.9999)


def _round_down(value: float) -> float:
    return 1 / _round_up(1 / value)


def _rows(y: Scale, ticks: Iterable[tuple[float, str]]) -> Iterator[str]:
    for value, label in ticks:
        yield f'<path class="grid" d="M{LEFT} {y(value):.1f}H{RIGHT}"/>'
        yield _text(LEFT - 8, y(value) + 4, label, "end")


def _columns(x: Scale, y: Scale, ticks: Iterable[tuple[float, str]]) -> Iterator[str]:
    for value, label in ticks:
        yield f'<path class="grid" d="M{x(value):.1f} {BASE}V{y.end:.1f}"/>'
        yield _text(x(value), BASE + 18, label, "middle")
    yield f'<path class="axis" d="M{LEFT} {BASE}H{RIGHT}"/>'


def _heading(strong: str, more: str = "") -> str:
    return f'<text x="28" y="0"><tspan class="heading">{strong}</tspan><tspan dx="10">{more}</tspan></text>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    """Without the control characters, for which XML has no way to write them."""
    return escape("".join(letter if letter.isprintable() else " " for letter in text))


def _jobs(count: int) -> str:
    return f"{count:,} job" if count == 1 else f"{count:,} jobs"


def _duration(milliseconds: float) -> str:
    small = abs(milliseconds) < 999.5
    return f"{_number(milliseconds)} ms" if small else f"{_number(milliseconds / 1000)} s"


def _number(value: float) -> str:
    """Three digits, and none past the thousandths."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{round(value, 3) + 0.0:.3g}"
