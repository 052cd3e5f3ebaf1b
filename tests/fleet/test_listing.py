"""Frozen lists: names, orders, versions, and files that somebody else wrote."""

import json
import os
from pathlib import Path

import pytest

from redline.errors import UserError
from redline.files import create_file
from redline.fleet.listing import (
    FLEET_JSON,
    MAX_SLOTS,
    Listing,
    Part,
    Slot,
    Wishes,
    change_listing,
    changed,
    expected_minutes,
    make_slots,
    new_listing,
    ordered,
    read_listing,
    read_wish,
    undone,
    write_listing,
)

PART = Part(("pong", "redline/Catch-v0"), ("dqn", "ppo"), (1, 2), {"max-minutes": 30})


def listing_of(*parts: Part) -> Listing:
    return new_listing("test", Wishes(), make_slots(parts), "redline fleet start")


def test_a_list_is_games_times_algorithms_times_seeds() -> None:
    assert [slot.name for slot in make_slots([PART])] == [
        *("pong-dqn-s1", "pong-dqn-s2", "pong-ppo-s1", "pong-ppo-s2"),
        *("redline-catch-v0-dqn-s1", "redline-catch-v0-dqn-s2", "redline-catch-v0-ppo-s1", "redline-catch-v0-ppo-s2"),
    ]


def test_long_names_keep_their_seeds_apart() -> None:
    slots = make_slots([Part(("mypkg/" + "VeryLong" * 20,), ("quantile-rainbow",), (1, 12, 2**31 - 1), {})])
    assert [slot.name.rpartition("-")[2] for slot in slots] == ["s1", "s12", f"s{2**31 - 1}"]
    assert all(len(slot.name) <= 60 for slot in slots)


def test_long_names_keep_games_and_variants_apart() -> None:
    parts = [Part(("MontezumaRevenge",), ("rainbow",), (1,), {}, f"the-learning-rate-is-{word}") for word in ("a", "b")]
    names = [slot.name for slot in make_slots(parts)]
    assert len(set(names)) == 2
    assert all(len(name) <= 43 for name in names)


def test_of_two_starts_in_one_folder_the_slower_one_replaces_nothing(tmp_path: Path) -> None:
    write_listing(tmp_path, listing_of(PART), write=create_file)
    with pytest.raises(UserError, match=r"^cannot write the fleet's list: [^\n]+ exists"):
        write_listing(tmp_path, new_listing("other", Wishes(), make_slots([PART]), "x"), write=create_file)
    assert read_listing(tmp_path).name == "test"


def test_flags_are_those_of_redline_train() -> None:
    settings = {"lr": 0.1, "record-values": True, "sizes": [1, 2], "max-steps": "None"}
    assert Slot("a-s1", "pong", "dqn", 3, settings).flags == [
        *("--env", "pong", "--model", "dqn", "--seed", "3", "--lr=0.1", "--record-values", "--sizes", "1", "2"),
        "--max-steps=None",
    ]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], "the fleet has no runs"),
        ([PART, PART], "the fleet has pong-dqn-s1 twice"),
        ([Part(("pong",), ("dqn",), tuple(range(MAX_SLOTS + 1)), {})], "use at most 10,000"),
        ([Part(("pong",), ("dqn",), (1,), {"log-dir": "/etc"})], "log-dir is no setting of a run in a fleet"),
        ([Part(("pong",), ("dqn",), (1,), {"env.id": "os:x"})], "env.id is no setting of a run in a fleet"),
        ([Part(("pong",), ("dqn",), (1,), {"--lr": 1})], "without dashes"),
        ([Part(("pong",), ("dqn",), (1,), {"lr=1 --env": 1})], "without dashes"),
        ([Part(("os:system",), ("dqn",), (1,), {})], "not of a typed module"),
    ],
)
def test_what_is_no_list_is_refused_in_a_line(parts: list[Part], said: str) -> None:
    with pytest.raises(UserError, match=said.replace("(", r"\(")) as error:
        make_slots(parts)
    assert "\n" not in str(error.value)


def test_the_longest_starts_first_and_equal_ones_stay_as_listed() -> None:
    parts = [
        Part(("short",), ("dqn",), (1, 2), {"max-minutes": 1}),
        Part(("long",), ("dqn",), (1,), {"max-steps": 1_000_000}),
        Part(("endless",), ("dqn",), (1,), {}),
        Part(("middle",), ("dqn",), (1,), {"max-steps": 1_000_000, "max-minutes": 10}),
    ]
    slots = make_slots(parts)
    longest = ["endless-dqn-s1", "long-dqn-s1", "middle-dqn-s1", "short-dqn-s1", "short-dqn-s2"]
    assert [slot.name for slot in ordered(slots, "longest-first")] == longest
    shortest = ["short-dqn-s1", "short-dqn-s2", "middle-dqn-s1", "long-dqn-s1", "endless-dqn-s1"]
    assert [slot.name for slot in ordered(slots, "shortest-first")] == shortest
    assert ordered(slots, "as-listed") == list(slots)
    assert expected_minutes(slots[4]) == 10.0


def test_a_change_gives_new_names_and_undoing_it_brings_the_old_slots_back() -> None:
    first = listing_of(PART)
    second = changed(first, ["pong"], {"batch-size": 64}, "change")
    third = changed(second, ["ppo"], {"batch-size": 16}, "change")
    assert [slot.name for slot in third.slots][:4] == [
        "pong-dqn-s1.v2",
        "pong-dqn-s2.v2",
        "pong-ppo-s1.v3",
        "pong-ppo-s2.v3",
    ]
    assert third.slots[2].settings == {"max-minutes": 30, "batch-size": 16}
    back = undone(third, "undo")
    assert back.slots == second.slots
    assert undone(back, "undo").slots == first.slots
    with pytest.raises(UserError, match="there is no change to undo"):
        undone(undone(back, "undo"), "undo")
    assert len(third.all_slots) == 8 + 4 + 4


def test_a_change_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="--only names 'enduro', which is not in the fleet: use dqn, pong"):
        changed(listing_of(PART), ["enduro"], {"batch-size": 64}, "change")


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    listing = changed(listing_of(PART), ["pong"], {"sizes": [1, 2], "explore": "greedy"}, "change")
    write_listing(tmp_path, listing)
    assert read_listing(tmp_path) == listing


def test_one_process_at_a_time_changes_a_list(tmp_path: Path) -> None:
    write_listing(tmp_path, listing_of(PART))

    def change_twice(listing: Listing) -> Listing:
        with pytest.raises(UserError, match="in use by"):
            change_listing(tmp_path, lambda before: before)
        return changed(listing, ["pong"], {"lr": 1.0}, "change")

    _, after = change_listing(tmp_path, change_twice)
    assert read_listing(tmp_path) == after


def edited(**changes: object) -> str:
    slot = {"name": "a-s1", "game": "pong", "algorithm": "dqn", "seed": 1, "settings": {}, **changes}
    version = {"slots": [slot], "unix_s": 1.0, "command": "x"}
    return json.dumps({"schema": 1, "fleet": {"name": "test", "wishes": {}, "versions": [version]}})


HOSTILE = {
    "no JSON": "[[[",
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep inside": edited(settings=json.loads("[" * 40 + "]" * 40)),
    "another schema": '{"schema": 7}',
    "huge number": edited(seed=10**30),
    "negative seed": edited(seed=-1),
    "a number of many digits": '{"schema": 1, "fleet": ' + "9" * 10_000 + "}",
    "another folder": edited(name="../a-s1"),
    "the supervisor's name": edited(name="supervisor"),
    "flags": edited(settings={"log-dir": "/etc"}),
    "a module": edited(game="os:system"),
    "a list of lists": edited(settings={"a": [[1]]}),
    "no versions": '{"schema": 1, "fleet": {"name": "test", "wishes": {}, "versions": []}}',
    "an undo that leads nowhere": edited().replace('"command": "x"', '"command": "x", "undo_to": 5'),
    "line breaks in a name": edited().replace('"test"', '"test\\n#SBATCH --uid=0"'),
    "endless waiting": edited().replace('"wishes": {}', '"wishes": {"stagger_s": 1e300}'),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_list_that_somebody_made_up_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / FLEET_JSON).write_text(text)
    with pytest.raises(UserError) as error:
        read_listing(tmp_path)
    assert str(tmp_path / FLEET_JSON) in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_a_list_is_no_link_and_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(edited())
    (tmp_path / FLEET_JSON).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"is not a fleet: .*link"):
        read_listing(tmp_path)
    (tmp_path / FLEET_JSON).unlink()
    os.mkfifo(tmp_path / FLEET_JSON)
    with pytest.raises(UserError, match="not a regular file"):
        read_listing(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "wish"),
    [
        ("concurrency", "auto", ("concurrency", 0)),
        ("concurrency", "3", ("concurrency", 3)),
        ("concurrency", 4, ("concurrency", 4)),
        ("stagger-s", 0, ("stagger_s", 0.0)),
        ("engine", "ray", ("engine", "ray")),
        ("order", "as-listed", ("order", "as-listed")),
    ],
)
def test_wishes(key: str, value: object, wish: tuple[str, object]) -> None:
    assert read_wish(key, value) == wish


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("concurrency", value) for value in ("0", 0, -1, "many", 1.5, True, 10**9)),
        *(("stagger-s", value) for value in (-1, "soon", float("nan"), 1e9)),
        *(("engine", "dask"), ("order", "random"), ("price-per-hour", -1)),
    ],
)
def test_wishes_that_can_not_be_are_refused(key: str, value: object) -> None:
    with pytest.raises(UserError, match=f"^{key} is .*: use "):
        read_wish(key, value)
