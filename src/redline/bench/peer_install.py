"""Whether a peer is installed, and what to do if it is not."""

from __future__ import annotations

from importlib import import_module

INSTALL = "make setup EXTRAS=bench"


def why_missing(module: str, package: str) -> str | None:
    """Return why a peer can't be measured here, or None if it can."""
    try:
        import_module(module)
    except ImportError as error:
        return f"{package} is not installed ({error}): {INSTALL}"
    return None
