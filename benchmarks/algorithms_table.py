"""The table of the algorithms: what the catalog says of each, and what the newest records measured."""

from collections.abc import Mapping
from typing import Any

from redline.algorithms.catalog import ALGORITHMS
from run_reading import as_text, markdown_table

COLUMNS = (
    "algorithm",
    "changes",
    "paper",
    "CartPole-v1: seeds passed, median steps",
    "Acrobot-v1: seeds passed, median steps",
    "LunarLander-v3: seeds passed, median steps",
    "Catch: steps",
    "Pong: steps/s",
    "Pong: greedy mean",
)
CLASSIC_RECORDS = ("algorithms-cartpole-v1", "algorithms-acrobot-v1", "algorithms-lunarlander-v3")
NONE = "–"

Result = Mapping[str, Any]


def make_algorithms_table(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table in Markdown, from the newest record of each name."""
    rows = [
        (
            f"`{name}`",
            entry.changes,
            entry.paper,
            *(_seeds_and_steps(_result(records, record, name)) for record in CLASSIC_RECORDS),
            _number(_result(records, "algorithms-catch", name), "first_reached_steps"),
            _number(_result(records, "algorithms-pong-speed", name), "steps_per_s"),
            as_text(_result(records, "algorithms-pong-score", name).get("mean_return")),
        )
        for name, entry in ALGORITHMS.items()
    ]
    return markdown_table(COLUMNS, rows)


def _result(records: Mapping[str, Mapping[str, Any]], record: str, algorithm: str) -> Result:
    found: Result = records[record]["summary"]["algorithms"].get(algorithm, {}) if record in records else {}
    return found


def _seeds_and_steps(result: Result) -> str:
    if not result:
        return NONE
    return f"{result['seeds_passed']} of {result['seeds']}, {_number(result, 'first_reached_steps')}"


def _number(result: Result, key: str) -> str:
    value = result.get(key)
    return NONE if value is None else f"{value:,.0f}"
