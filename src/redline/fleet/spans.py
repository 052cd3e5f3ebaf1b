"""Spans of time that overlap."""

from __future__ import annotations

from collections.abc import Sequence


def union_of(spans: Sequence[tuple[float, float]]) -> tuple[float, int]:
    """Return the seconds that lie in at least one span, and in how many spans one moment lies at most."""
    edges = sorted([(begin_s, 1) for begin_s, _ in spans] + [(end_s, -1) for _, end_s in spans])
    total_s, begun_s, depth, most = 0.0, 0.0, 0, 0
    for at_s, step in edges:
        begun_s = at_s if depth == 0 else begun_s
        depth += step
        most = max(most, depth)
        total_s += at_s - begun_s if depth == 0 else 0.0
    return total_s, most
