"""Numbers as the pages of a report show them: three digits that matter, and a dash where nothing is known."""

from __future__ import annotations

import math
from datetime import UTC, datetime

DASH = "–"
SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def amount(value: float | None, unit: str = "") -> str:
    """Return a number with three digits that matter, thousands grouped, a true minus sign."""
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:#.3g}".removesuffix(".")
    text = f"{value:.1e}" if value and abs(value) < 1e-3 else text
    text = text.replace("-", "−")
    return f"{text} {unit}" if unit else text


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return DASH if value is None or not math.isfinite(value) else f"{value:.1%}".replace("%", " %").replace("-", "−")


def span(seconds: float | None) -> str:
    """Return a time span in the unit that suits it."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    for limit, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * limit:
            return amount(seconds / limit, unit)
    return amount(seconds, "s")


def size_unit(count_bytes: float) -> tuple[float, str]:
    """Return by what to divide bytes of this size, and the unit that this gives."""
    return next((found for found in SIZES if abs(count_bytes) >= found[0]), SIZES[-1])


def size(count_bytes: float | None) -> str:
    """Return bytes in decimal units."""
    if count_bytes is None or not math.isfinite(count_bytes):
        return DASH
    divisor, unit = size_unit(count_bytes)
    return amount(count_bytes / divisor, unit)


def moment(unix_s: float | None) -> str:
    """Return a moment of the wall clock, UTC."""
    try:
        return DASH if unix_s is None else f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return DASH
