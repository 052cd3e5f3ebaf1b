"""What every bench result says of where and how it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redline.records import SCHEMA
from redline.runs.host import host_facts, version


def result_head(packages: Sequence[str] = ()) -> dict[str, Any]:
    """Return schema, machine, commit and versions, those of `packages` included."""
    facts = host_facts()
    versions: Any = facts["versions"]
    return {
        "schema": SCHEMA,
        "host": facts["host"],
        "commit": facts["commit"],
        "versions": versions | {name: version(name) for name in packages},
    }
