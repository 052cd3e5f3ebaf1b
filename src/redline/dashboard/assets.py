"""The files that make the page: its own, and the charts and colours that it shares with the report."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

KINDS = {"js": "text/javascript", "css": "text/css"}
SHARED = ("uPlot.iife.min.js", "uPlot.min.css", "charts.js", "page.css")  # of the report
PAGE, SHELL = "page", "index.html"


@dataclass(frozen=True)
class Asset:
    """A file as it is sent."""

    content: bytes
    kind: str
    tag: str  # its ETag


def _assets() -> dict[str, Asset]:
    report, own = files("redline.report"), files("redline.dashboard").joinpath(PAGE)
    found = [report.joinpath(name) for name in SHARED] + [one for one in own.iterdir() if one.name != SHELL]
    return {one.name: _asset(one) for one in found if one.name.rpartition(".")[2] in KINDS}


def _asset(file: Traversable) -> Asset:
    content = file.read_bytes()
    return Asset(content, KINDS[file.name.rpartition(".")[2]], f'"{hashlib.sha256(content).hexdigest()[:16]}"')


@cache
def shell() -> str:
    """Return the page, which is the same for every address."""
    return files("redline.dashboard").joinpath(PAGE, SHELL).read_text(encoding="utf-8")


ASSETS = _assets()
