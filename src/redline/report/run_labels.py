"""A short name for each run of a report: its algorithm, and what tells it from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from redline.report.row_values import one_line, setting, text

MAX_LABEL_CHARACTERS = 60
# setting → how its value is written
FACTS: Mapping[str, str] = {
    "env.id": "{}",
    "batch_size": "batch {}",
    "learner.threads": "{} threads",
    "num_envs": "{} envs",
    "topology": "{}",
    "seed": "s{}",
}


def label_runs(runs: Sequence[tuple[str, Mapping[str, Any] | None]]) -> list[str]:
    """Return a label for each run, given the name of its folder and its run.json."""
    told = [name for name in FACTS if len({str(setting(run, name)) for _, run in runs if run is not None}) > 1]
    if len(runs) == 1:
        told = ["env.id", "seed"]
    labels = [_label(folder, run, told) for folder, run in runs]
    many = Counter(labels)
    # runs of the same settings differ by when they were started, which their folders are named after
    labels = [
        label if many[label] == 1 else f"{label} {one_line(folder)[-MAX_LABEL_CHARACTERS:]}".strip()
        for label, (folder, _) in zip(labels, runs, strict=True)
    ]
    return _numbered(labels)


def _label(folder: str, run: Mapping[str, Any] | None, told: Sequence[str]) -> str:
    algorithm = None if run is None else text(run, "algorithm")
    if not algorithm:
        return one_line(folder)[:MAX_LABEL_CHARACTERS] or "run"
    values = [(name, setting(run, name)) for name in told]
    facts = [_in_words(name, value) for name, value in values if value is not None]
    return " ".join([algorithm, *facts])[:MAX_LABEL_CHARACTERS].strip()


def _in_words(name: str, value: object) -> str:
    words = FACTS[name].format(one_line(str(value)))
    return words.removesuffix("s") if value == 1 and words.startswith("1 ") else words


def _numbered(labels: Sequence[str]) -> list[str]:
    """Put a number behind those that are still the same."""
    found: list[str] = []
    taken = set(labels)
    for label in labels:
        name, count = label, 1
        while name in found or (count > 1 and name in taken):
            count += 1
            name = f"{label} ({count})"
        found.append(name)
    return found
