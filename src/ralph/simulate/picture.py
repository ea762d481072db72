"""Pictures of many runs: a histogram in text, and one of everything that runs take as SVG."""

from collections.abc import Sequence
from html import escape

from ralph.simulate.figures import TAKEN, Figures
from ralph.simulate.play import Played

BARS, WIDE = 12, 40
_INK, _GOOD, _BAD, _FALSE = "#4a4a4a", "#5b9a68", "#d9a441", "#c0392b"
_COLOURS = {"completed": _GOOD, "not completed": _BAD, "false success": _FALSE}


def amount(name: str, value: float) -> str:
    """An amount as people read it."""
    match name:
        case "money":
            return f"${value:.2f}"
        case "tokens":
            return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.0f}k"
        case "hours":
            return f"{value:.1f} h" if value >= 1 else f"{value * 60:.0f} min"
        case _:
            return f"{value:.0f}"


def histogram(figures: Figures, name: str) -> list[str]:
    """How many runs took how much, a line for each step; those that were not completed are hollow."""
    steps, bins = _binned(figures.runs, name)
    most = max(len(runs) for runs in bins) or 1
    lines = []
    for low, high, runs in zip(steps, steps[1:], bins, strict=False):
        whole = round(WIDE * len(runs) / most)
        good = round(WIDE * sum(run.completed for run in runs) / most)
        lines.append(f"  {_step(name, low, high):>15} {'█' * good}{'░' * (whole - good)} {len(runs)}")
    return lines


def svg(figures: Figures, title: str) -> str:
    """The distribution of all that runs take, with what was completed and what was not."""
    parts = [_text(24, 34, title, 16), _text(24, 58, _summary(figures), 12)]
    parts += _legend(24, 74)
    for number, name in enumerate(TAKEN):
        parts += _panel(figures, name, 24 + 370 * (number % 2), 110 + 240 * (number // 2))
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 764 590" font-family="sans-serif" role="img">'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", '<rect width="764" height="590" fill="#fff"/>', *parts, "</svg>\n"]
    )


def _panel(figures: Figures, name: str, x: float, y: float) -> list[str]:
    """One histogram, stacked."""
    steps, bins = _binned(figures.runs, name)
    most, wide, tall = max(len(runs) for runs in bins) or 1, 344 / len(bins), 150
    parts = [_text(x, y + 14, name, 13)]
    for number, runs in enumerate(bins):
        floor = y + 30.0 + tall
        for kind, colour in _COLOURS.items():
            count = sum(_kind(run) == kind for run in runs)
            if not count:
                continue
            high = tall * count / most
            floor -= high
            told = escape(f"{_step(name, steps[number], steps[number + 1])}: {count} {kind}")
            place = f'x="{x + number * wide:.1f}" y="{floor:.1f}" width="{wide - 2:.1f}" height="{high:.1f}"'
            parts.append(f'<rect {place} fill="{colour}"><title>{told}</title></rect>')
    ground = y + 30 + tall
    parts.append(f'<path d="M{x} {ground}h344" stroke="{_INK}"/>')
    parts += [
        _text(x, ground + 16, amount(name, steps[0]), 11),
        _text(x + 344, ground + 16, amount(name, steps[-1]), 11, "end"),
    ]
    return parts


def _legend(x: float, y: float) -> list[str]:
    parts = []
    for number, (kind, colour) in enumerate(_COLOURS.items()):
        left = x + 130 * number
        parts += [
            f'<rect x="{left}" y="{y}" width="12" height="12" fill="{colour}"/>',
            _text(left + 18, y + 10, kind, 11),
        ]
    return parts


def _binned(runs: Sequence[Played], name: str) -> tuple[list[float], list[list[Played]]]:
    """Steps of the same width from the least to the most, and the runs in each."""
    amounts = [TAKEN[name](run) for run in runs]
    low, high = min(amounts), max(amounts)
    if name == "turns":
        width = max(1, -(-int(high - low + 1) // BARS))
        steps = [low + width * number for number in range(int(high - low) // width + 2)]
    else:
        width_of = (high - low) / BARS or 1.0
        steps = [low + width_of * number for number in range(BARS + 1)] if high > low else [low, low + width_of]
    bins: list[list[Played]] = [[] for _ in steps[1:]]
    for run, value in zip(runs, amounts, strict=True):
        bins[min(len(bins) - 1, int((value - low) / (steps[1] - steps[0])))].append(run)
    return steps, bins


def _step(name: str, low: float, high: float) -> str:
    if name != "turns":
        return f"{amount(name, low)} - {amount(name, high)}"
    return f"{low:.0f}" if high - low == 1 else f"{low:.0f} - {high - 1:.0f}"


def _kind(run: Played) -> str:
    return "completed" if run.completed else "false success" if run.succeeded else "not completed"


def _summary(figures: Figures) -> str:
    low, high = figures.between
    share = f"{figures.share:.1%} completed ({low:.1%} to {high:.1%})"
    return f"{len(figures.runs)} runs, {share}, false successes: {len(figures.false)}"


def _text(x: float, y: float, words: str, size: int, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{_INK}" text-anchor="{anchor}">{escape(words)}</text>'
