"""A reading goes into a row of JSON and comes back the same."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from redline.jsonl import encode_row
from redline.runtime.gauges import Gauges, RoleGauges

ACTOR = RoleGauges("actor-0", 4711, 71.5, 3_000_000, 905.2, None, {"learner": 0.25, "envs": 0.11}, 12.5, restarts=2)
LOST = RoleGauges("actor-1", None, None, None, None, None, {}, None)


def make_gauges(**changes: Any) -> Gauges:
    numbers = {name: 1.5 for name, field in Gauges.__dataclass_fields__.items() if "float" in str(field.type)}
    counts = {name: 3 for name, field in Gauges.__dataclass_fields__.items() if "int" in str(field.type)}
    return replace(Gauges(**{**numbers, **counts}), **changes)


def test_a_row_of_json_is_the_same_reading() -> None:
    gauges = make_gauges(roles=(ACTOR, LOST), loss=None, greedy_return=None)
    assert Gauges.from_row(json.loads(encode_row(gauges.row()))) == gauges
    assert Gauges.from_row(gauges.row()) == gauges


def test_a_reading_without_roles_comes_back_too() -> None:
    assert Gauges.from_row(json.loads(json.dumps(make_gauges().row()))).roles == ()


def test_a_row_of_an_older_version_is_read_without_what_it_does_not_have() -> None:
    optional = {name for name, field in Gauges.__dataclass_fields__.items() if "None" in str(field.type)}
    row = make_gauges().row()
    old = {name: value for name, value in row.items() if name not in optional and name != "roles"}
    assert Gauges.from_row(old) == make_gauges(**dict.fromkeys(optional))
    role = Gauges.from_row({**row, "roles": [{"role": "learner", "pid": 7}]}).roles[0]
    assert role == RoleGauges("learner", 7, None, None, None, None, {}, None)


def test_a_row_of_a_newer_version_is_read_without_what_this_one_does_not_know() -> None:
    row = make_gauges(roles=(ACTOR,)).row()
    newer = {**row, "mood": 1.0, "roles": [{**row["roles"][0], "mood": 1.0}]}
    assert Gauges.from_row(newer) == Gauges.from_row(row)


@pytest.mark.parametrize("wrong", [{}, {"steps": None}, {"loss": "low"}, {"roles": 3}, {"roles": [3]}, {"roles": "ab"}])
def test_a_row_that_is_no_reading_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no reading"):
        Gauges.from_row({**make_gauges().row(), **wrong} if wrong else {})


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 10**400])
def test_a_number_that_nobody_measured_is_none_or_makes_the_row_no_reading(number: float) -> None:
    row = make_gauges(roles=(ACTOR,)).row()
    role = {**row["roles"][0], "cpu_percent": number, "waiting": {"envs": number, "learner": 0.25}}
    read = Gauges.from_row({**row, "loss": number, "roles": [role]})
    assert (read.loss, read.roles[0].cpu_percent, read.roles[0].waiting) == (None, None, {"learner": 0.25})
    for name in ("time_s", "steps"):
        with pytest.raises(ValueError, match=f"no reading: .*{name}"):
            Gauges.from_row({**row, name: number})


@pytest.mark.parametrize(
    "wrong",
    [
        *({"role": None}, {"role": 3}, {"pid": "x"}, {"cpu_percent": "much"}, {"rss_bytes": []}, {"restarts": "often"}),
        *({"waiting": "abc"}, {"waiting": {"envs": "x"}}, {"busy": 5}, {"busy": {"act": []}}),
    ],
)
def test_a_role_of_other_kinds_of_values_is_refused(wrong: dict[str, Any]) -> None:
    row = make_gauges(roles=(ACTOR,)).row()
    with pytest.raises(ValueError, match=f"no reading: .*{next(iter(wrong))}"):
        Gauges.from_row({**row, "roles": [{**row["roles"][0], **wrong}]})


def test_names_in_a_reading_cannot_drive_a_terminal() -> None:
    row = make_gauges(roles=(ACTOR,)).row()
    names = {"role": "\x1b[31mred\n", "waiting": {"\x1b[2Jx": 0.9}, "busy": {"\ract": 0.1}}
    (role,) = Gauges.from_row({**row, "roles": [{**row["roles"][0], **names}]}).roles
    assert (role.role, role.waiting, role.busy) == (" [31mred ", {" [2Jx": 0.9}, {" act": 0.1})


@pytest.mark.parametrize("kind", [Gauges, RoleGauges])
def test_every_field_is_documented(kind: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / "run-directory.md").read_text(encoding="utf-8")
    section = text.split("## metrics.jsonl")[1].split("\n## ")[0]
    names = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert {field.name for field in fields(kind)} <= names
