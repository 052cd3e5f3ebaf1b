"""The rungs are data: each changes what it says, and one more is a few lines."""

from dataclasses import fields

import pytest
import torch

from redline.bench.ladder import climb
from redline.bench.ladder.climb import Ladder
from redline.bench.ladder.env_parts import Native
from redline.bench.ladder.rungs import BASE, RUNGS, Rung, place_rungs
from redline.errors import UserError


def test_each_rung_differs_from_the_one_below_in_what_it_names_alone() -> None:
    placed = {item.name: item for item in place_rungs()}
    assert list(placed) == [rung.name for rung in RUNGS]
    for item in placed.values():
        if item.below is None:
            continue
        below = placed[item.below]
        changed = {
            part.name
            for part in fields(item.parts)
            if getattr(item.parts, part.name) != getattr(below.parts, part.name)
        }
        assert changed == set(item.rung.changes), item.name
        assert changed or item.runner != below.runner, f"{item.name} switches nothing on"


def test_a_selection_holds_the_base_and_builds_on_the_nearest_rung_that_is_in_it() -> None:
    placed = place_rungs(["engine", "envs-8", "sync-4"])
    assert [(item.name, item.below) for item in placed] == [
        (BASE, None),
        ("envs-8", BASE),
        ("engine", "envs-8"),
        ("sync-4", "engine"),
    ]
    assert placed[2].parts == {item.name: item for item in place_rungs()}["engine"].parts


def test_an_unknown_rung_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="overlapped"):
        place_rungs(["overlaped"])


def test_a_rung_more_is_a_few_lines_and_is_measured(quick: None) -> None:
    more = (*RUNGS, Rung("envs-2", "two envs", {"env": Native(2)}, over="native-env"))
    ladder = Ladder(names=["envs-2"], rounds=1, turn_s=0.05, learning_seeds=1, learning_steps=520, rungs=more)
    base, added = ladder.run()["rungs"]
    assert (base["name"], added["name"], added["over"]) == (BASE, "envs-2", BASE)
    assert added["steps_per_s"]["median"] > 0
    assert added["samples_per_step"]["median"] == pytest.approx(8.0)
    assert -1.0 <= added["learning"]["mean_return"] <= 1.0


def test_rungs_that_need_a_gpu_say_so_without_one(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    torch.set_flush_denormal(False)
    result = Ladder(names=["gpu-copies"], rounds=1, turn_s=0.01, learning_seeds=0).run()
    gpu = result["rungs"][1]
    assert gpu["missing"] == "needs a GPU"
    assert gpu["steps_per_s"] is None
    assert result["base"]["valid"] is None
    # the base alone, and yet in a process that is prepared as for Redline's engine
    assert torch.tensor([1e-40]).mul(1.0).item() == 0.0


def test_rungs_that_do_not_fit_into_memory_are_refused(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climb, "available_bytes", lambda: 10**6)
    with pytest.raises(UserError, match="--rungs"):
        Ladder(rounds=1).run()
