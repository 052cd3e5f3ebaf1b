"""Numbers as people read them: bytes, time spans, rates."""


def size(num_bytes: float, digits: int = 2) -> str:
    """Return bytes in decimal units: 1_500 is 1.50 kB."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= limit:
            return f"{num_bytes / limit:.{digits}f} {unit}"
    return f"{num_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units."""
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{int(minutes)} min {int(seconds % 60):02d} s"
    if hours < 48:
        return f"{int(hours)} h {int(minutes % 60):02d} min"
    return f"{int(days)} d {int(hours % 24):02d} h"


def money(amount: float) -> str:
    """Return an amount of money: to the cent above a dollar, finer below."""
    digits = 2 if abs(amount) >= 1 or amount == 0 else 3 if abs(amount) >= 0.1 else 4
    return f"${amount:,.{digits}f}"


def energy(joules: float) -> str:
    """Return energy as one pays for it: 3_600 J is 1.00 Wh."""
    watt_hours = joules / 3_600
    return f"{watt_hours / 1e3:,.2f} kWh" if watt_hours >= 1e3 else f"{watt_hours:.2f} Wh"


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with a true minus sign, or a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def rate(value: float) -> str:
    """Return a rate with at least three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
