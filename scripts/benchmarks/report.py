"""Medians, ratios, and tables that a reader understands."""

import statistics

from .measures import MEASURES
from .peers import OURS
from .prices import DEFAULT
from .single import BARE


def median(samples, value):
    """Return the median of a number over the rounds that did not fail; None if all did."""
    numbers = [sample[value] for sample in samples if not isinstance(sample, str)]
    return statistics.median(numbers) if numbers else None


def ratio(figure, ours, theirs):
    """Return how many times better ours is; below 1 it is worse."""
    return ours / theirs if figure.more_is_better else theirs / ours


def number(value):
    """Write a number with three digits that count."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def times(value):
    return f"{number(value)} x better" if value >= 1 else f"{number(1 / value)} x worse"


def rows(found):
    """Yield (figure, {peer: median}) of all that was measured, in the order of the table."""
    for name, measure in MEASURES.items():
        peers = [peer for measured, peer in found if measured == name]
        for figure in measure.figures if peers else ():
            values = {peer: median(found[name, peer], figure.value) for peer in peers}
            values = {peer: value for peer, value in values.items() if value is not None}
            if values:
                yield figure, values


def text(found):
    """Return a block for each figure, the best first."""
    lines = []
    for figure, values in rows(found):
        better = "more" if figure.more_is_better else "less"
        lines += ["", f"{figure.title} ({figure.unit}, {better} is better)"]
        ours = values.get(OURS)
        for peer in sorted(values, key=values.__getitem__, reverse=figure.more_is_better):
            line = f"  {'* ' if peer == OURS else '  '}{peer:22}{number(values[peer]):>12}"
            if ours and peer != OURS:
                line += f"    ptss_mp is {times(ratio(figure, ours, values[peer]))}"
            lines.append(line)
    return "\n".join(lines)


def markdown(found):
    """Return a table: a line for each figure, a column for each peer, how many times better ptss_mp is."""
    table = list(rows(found))
    there = {peer for _, values in table for peer in values}
    peers = [OURS] + [peer for peer in dict.fromkeys(peer for _, peer in found) if peer in there - {OURS, BARE}]
    peers += [BARE] if BARE in there else []
    lines = [f"| figure | {' | '.join(peers)} |", "|---" * (len(peers) + 1) + "|"]
    for figure, values in table:
        ours = values.get(OURS)
        cells = []
        for peer in peers:
            cell = number(values[peer]) if peer in values else ""
            if cell and ours and peer != OURS:
                cell += f" ({number(ratio(figure, ours, values[peer]))})"
            cells.append(cell)
        more = ", more is better" if figure.more_is_better else ""
        lines.append(f"| {figure.title}, {figure.unit}{more} | {' | '.join(cells)} |")
    return "\n".join(lines)


def failures(found):
    """Return a line for each measurement that failed."""
    return [
        f"{peer}: {measure}: {sample}"
        for (measure, peer), samples in found.items()
        for sample in samples
        if isinstance(sample, str)
    ]


PARTS = (
    ("parent_us", "program"), ("children_us", "warden"), ("below_us", "workers"), ("all_us", "all"),
    ("jobs_per_s", "jobs/s"),
)  # fmt: skip


def prices(found, marks=False):
    """Return a table of what options cost: processor time per no-op job, in µs."""
    medians = {
        name: {value: median(samples, value) for value, _ in PARTS}
        for (_, name), samples in found.items()
        if median(samples, "all_us") is not None
    }
    base = medians.get(DEFAULT, {}).get("all_us")
    head = ["µs of processor time per no-op job", *(title for _, title in PARTS), "more than default"]
    table = [head]
    for name, values in medians.items():
        more = f"{values['all_us'] - base:+.1f}" if base and name != DEFAULT else ""
        table.append([name, *(number(values[value]) for value, _ in PARTS), more])
    if marks:
        return "\n".join(
            [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
            + [f"| {name} | {' | '.join(cells)} |" for name, *cells in table[1:]]
        )
    return "\n".join(f"{name:40}" + "".join(f"{cell:>{len(title) + 4}}" for cell, title in zip(cells, head[1:],
                     strict=True)) for name, *cells in table)  # fmt: skip
