"""The table of `Watcher.report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefold.clients.counters import Counters

_HEADER = ("label", "requests", "unfinished", "failed", "input", "read", "written", "output", "hit rate", "breaks")


def table(
    counters: Mapping[str, Counters], causes: Mapping[tuple[str, str, str], int], *, dropped: int, faults: int
) -> str:
    """Usage by label, then causes of breaks, then what is not in them.

    Args:
        counters: by label.
        causes: how often each label, cause and path occurred.
        dropped: requests that were not compared.
        faults: errors inside the watcher.
    """
    rows = [_HEADER, *(_row(label, counted) for label, counted in sorted(counters.items()))]
    lines = _aligned(rows)
    if causes:
        broken = [("breaks", "label", "cause", "path")]
        for (label, cause, path), count in sorted(causes.items(), key=lambda entry: (-entry[1], entry[0])):
            broken.append((f"{count:,}", label or "-", cause, path or "-"))
        lines += ["", *_aligned(broken, left=(1, 2, 3))]
    if silent := sum(counted.silent for counted in counters.values()):
        lines += ["", f"{silent:,} answers came without usage and count no tokens."]
    if dropped:
        lines += ["", f"{dropped:,} requests were not compared, because too many waited."]
    if faults:
        lines += ["", f"{faults:,} errors inside the watcher; the first is logged at DEBUG."]
    return "\n".join(lines)


def _row(label: str, counted: Counters) -> tuple[str, ...]:
    usage = counted.usage
    rate = usage.hit_rate
    numbers = (counted.requests, counted.unfinished, counted.failed, usage.input, usage.read, usage.write, usage.output)
    return (
        label or "-",
        *(f"{number:,}" for number in numbers),
        "unknown" if rate is None else f"{rate:.1%}",
        f"{counted.breaks:,}",
    )


def _aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
