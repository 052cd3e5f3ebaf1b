"""The ladder: its rungs give the same transitions and the same work, and the base must keep up with its peer."""

import json
import subprocess
import sys
from argparse import Namespace
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.wrappers import AtariPreprocessing, ClipReward

import ladder
import plain_loop
from ladder import BASE, RUNGS, SB3, judge_base, place_rungs, read_rung, train_flags
from plain_loop import LOOPS, TASKS, PlainLoop
from plain_parts import CLIPPING, LIFE_LOSS, FrameReplay, NativeEnv, StackReplay, Transitions, WrappedEnv
from recording import make_record
from redline.cli.flags import parse_train

CATCH = "redline/Catch-v0"
TASK = replace(TASKS["catch"], warmup_steps=64, capacity=2_000)


def rows(batch: Transitions) -> set[bytes]:
    return {b"".join(column[i].numpy().tobytes() for column in batch) for i in range(len(batch.action))}


@pytest.mark.parametrize(("codec", "prefetch"), [("raw", 0), ("zstd", 0), ("zstd", 1)])
def test_frames_stored_once_give_the_transitions_that_whole_stacks_give(codec: str, prefetch: int) -> None:
    env, rng = NativeEnv(CATCH, num_envs=2, seed=1), np.random.default_rng(1)
    obs = env.reset()
    replays = [StackReplay(obs, 1_000), FrameReplay(obs, 1_000, codec=codec, prefetch=prefetch)]
    for _ in range(40):  # some games of 11 steps
        actions = rng.integers(env.num_actions, size=2)
        env.send(actions)
        step = env.recv()
        for replay in replays:
            replay.add(obs, actions, step)
        obs = step.next_obs
    known = set[bytes]()
    for _ in range(80):  # 32 of 80 each time: all of them sooner or later
        known |= rows(replays[0].next_batch(rng))
    drawn = rows(replays[1].next_batch(rng))
    assert len(drawn) > 10
    assert drawn <= known


def test_wrapped_and_native_envs_show_the_same_stacks() -> None:
    for env in (WrappedEnv(CATCH, (), seed=1), NativeEnv(CATCH, num_envs=1, seed=1)):
        first = env.reset()
        assert first.shape == (1, 4, 84, 84)
        assert first.dtype == np.uint8
        assert not first[:, :3].any()  # zeros before an episode's first frame
        for number in range(1, 12):
            env.send(np.array([0]))
            step = env.recv()
            assert step.ended[0] == (number == 11)
        assert step.returns == [step.reward[0]]
        assert not step.next_obs[:, :3].any()
        assert step.obs[:, :3].any()  # the final observation is not lost


def test_wrappers_come_off_one_by_one() -> None:
    for name in ("textbook", "no-life-loss", "no-clipping"):
        wrappers = LOOPS[name].wrappers
        layer: Any = WrappedEnv(TASKS["pong"].env, wrappers, seed=1)._env
        found, ends_with_life = set[type](), False
        while layer is not layer.unwrapped:
            found.add(type(layer))
            if isinstance(layer, AtariPreprocessing):
                ends_with_life = layer.terminal_on_life_loss
            layer = layer.env
        assert ends_with_life == (LIFE_LOSS in wrappers)
        assert (ClipReward in found) == (CLIPPING in wrappers)
        layer.close()


@pytest.mark.parametrize("name", ["textbook", "overlapped", "prefetch"])
def test_the_loop_learns_once_in_four_steps(name: str) -> None:
    loop = PlainLoop(LOOPS[name], TASK, seed=1)
    before = {key: value.clone() for key, value in loop._online.state_dict().items()}
    while loop.updates < 20:
        loop.vector_step()
    assert loop.steps - TASK.warmup_steps == pytest.approx(4 * loop.updates, abs=16)
    assert all(not torch.equal(value, before[key]) for key, value in loop._online.state_dict().items())
    assert loop.returns


def test_a_rung_of_the_plain_loop_trains_in_a_process(tmp_path: Path) -> None:
    command = [sys.executable, plain_loop.__file__, "prefetch", "catch", "1", str(tmp_path), "560"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert -1.0 <= json.loads(done.stdout)["mean_return_100"] <= 1.0


def test_each_rung_of_the_plain_loop_changes_one_part() -> None:
    for rung, over in place_rungs().items():
        if rung.name in LOOPS and over is not None:
            ours, below = LOOPS[rung.name], LOOPS[over]
            changed = [part.name for part in fields(ours) if getattr(ours, part.name) != getattr(below, part.name)]
            assert len(changed) == 1, rung.name


@pytest.mark.parametrize("rung", [rung for rung in RUNGS if not rung.is_plain], ids=lambda rung: rung.name)
def test_redline_has_the_regime_of_the_loop(rung: ladder.Rung) -> None:
    job = parse_train(train_flags(rung, TASKS["pong"], seed=1)).job
    algorithm: Any = job.algorithm
    assert job.num_envs == 8
    assert algorithm.samples_per_step == 8.0
    steps_per_update = algorithm.batch_size / 8.0
    assert algorithm.target_sync_updates * steps_per_update == pytest.approx(4_000, rel=0.05)
    assert (job.topology == "async") is (rung.name in ("processes", "sync-4", "sync-10"))


def test_a_selection_holds_the_base_and_builds_on_the_nearest_rung_that_is_in_it() -> None:
    placed = place_rungs(["engine", "envs-8", "sync-4"])
    assert {rung.name: over for rung, over in placed.items()} == {
        BASE: None,
        "envs-8": BASE,
        "engine": "envs-8",
        "sync-4": "engine",
    }


def rounds(base: float, count: int = 5) -> list[dict[str, Any]]:
    window = {"updates_per_s": 25.0, "samples_per_step": 8.0, "cpu_percent": 150.0}
    speeds = {BASE: base, "engine": 2 * base, SB3: 100.0}
    row = {name: window | {"steps_per_s": speed} for name, speed in speeds.items()}
    return [row | {"busy_percent_before": 2.0}] * count


@pytest.mark.parametrize(("base", "count", "valid"), [(96.0, 5, True), (90.0, 5, False), (200.0, 4, None)])
def test_the_base_must_keep_up_with_the_peer(base: float, count: int, valid: bool | None) -> None:
    found = judge_base(rounds(base, count))
    assert found["valid"] is valid
    assert found["ratio"]["median"] == pytest.approx(base / 100.0)


def test_the_ladder_holds_if_its_base_does() -> None:
    placed = place_rungs(["engine"])
    rungs = [read_rung(rung, over, rounds(100.0), [0.5, None]) for rung, over in placed.items()]
    options = Namespace(learning_steps=6_000, learning_seeds=2, rounds=5, window_seconds=5.0)
    found = ladder.measurement(options, rungs, judge_base(rounds(100.0)))
    assert found.passed is True
    assert found.headline.startswith("up to 2.00 × (2.00–2.00) the base, with engine; textbook keeps up")
    assert rungs[1]["gain"]["median"] == 2.0
    learning = {"mean_return": 0.5, "low": None, "high": None, "by_seed": [0.5, None], "reason": None}
    assert rungs[1]["learning"] == learning
    make_record(found, argv=["x.py"], unix_s=0.0)


@pytest.mark.slow
def test_stable_baselines_does_the_same_work() -> None:
    pytest.importorskip("stable_baselines3")
    window = ladder.sb3_window("dqn-one-env", seconds=2.0, seed=1)
    assert window["samples_per_step"] == pytest.approx(8.0, rel=0.05)
    assert window["cpu_percent"] > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [BASE, "engine", "processes"])
def test_rungs_do_the_same_work_in_their_windows(name: str) -> None:
    rung = next(rung for rung in RUNGS if rung.name == name)
    assert ladder.window_of(rung, 2.0, 1)["samples_per_step"] == pytest.approx(8.0, rel=0.1)
