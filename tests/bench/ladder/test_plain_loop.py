"""The textbook's loop: its parts give the same transitions and the same work, whichever are switched on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.wrappers import AtariPreprocessing, ClipReward

from redline.bench.ladder import contenders
from redline.bench.ladder.contenders import InThisProcess
from redline.bench.ladder.devices import OnGpu, OnHost
from redline.bench.ladder.engine import settled_job, train_flags
from redline.bench.ladder.env_parts import CLIPPING, LIFE_LOSS, Native, Wrapped, make_wrapped
from redline.bench.ladder.plain_loop import LoopParts, PlainLoop
from redline.bench.ladder.replay_parts import FramesOnce, ReplayPart, Room, Stacks, Transitions
from redline.bench.ladder.rungs import place_rungs
from redline.bench.ladder.runners import InPlainLoop
from redline.bench.ladder.task import CATCH, PONG

TASK = replace(CATCH, warmup_steps=64, capacity=2_000)


def rows(batch: Transitions) -> set[bytes]:
    return {b"".join(column[i].numpy().tobytes() for column in batch) for i in range(len(batch.action))}


@pytest.mark.parametrize("part", [FramesOnce(), FramesOnce("zstd"), FramesOnce("zstd", prefetch=1)])
def test_frames_kept_once_give_the_transitions_that_whole_stacks_give(part: ReplayPart) -> None:
    env, rng = Native(2).make("redline/Catch-v0", seed=1), np.random.default_rng(1)
    obs = env.reset()
    room = Room(obs_shape=obs.shape, capacity=1_000, batch_size=64, pin_memory=False)
    replays = [kind.make(room) for kind in (Stacks(), part)]
    for replay in replays:
        replay.begin(obs)
    for _ in range(40):  # some games of 11 steps
        actions = rng.integers(env.num_actions, size=2)
        env.send(actions)
        step = env.recv()
        for replay in replays:
            replay.add(obs, actions, step)
        obs = step.next_obs
    known = set[bytes]()
    for _ in range(40):  # 64 of 80 each time: all of them sooner or later
        known |= rows(replays[0].next_batch(rng).cut())
    drawn = rows(replays[1].next_batch(rng).cut())
    assert len(drawn) > 20
    assert drawn <= known
    for replay in replays:
        replay.close()


def test_wrapped_and_native_envs_show_the_same_stacks() -> None:
    envs = [part.make("redline/Catch-v0", seed=1) for part in (Wrapped(), Native(1))]
    for env in envs:
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
        env.close()


def test_wrappers_come_off_one_by_one() -> None:
    for wrappers in ((LIFE_LOSS, CLIPPING), (CLIPPING,), ()):
        layer, found, ends_with_life = make_wrapped(PONG.env, wrappers), set[type](), False
        while layer is not layer.unwrapped:
            found.add(type(layer))
            if isinstance(layer, AtariPreprocessing):
                ends_with_life = layer.terminal_on_life_loss
            layer = layer.env  # type: ignore[attr-defined]
        assert ends_with_life == (LIFE_LOSS in wrappers)
        assert (ClipReward in found) == (CLIPPING in wrappers)
        layer.close()


@pytest.mark.parametrize("name", ["textbook", "overlapped", "prefetch", "batch-128"])
def test_every_rung_learns_from_eight_samples_per_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "SETTLE_STEPS", 8)
    parts = next(item.parts for item in place_rungs() if item.name == name)
    contender = InPlainLoop().contender(parts, TASK, seed=1)
    assert isinstance(contender, InThisProcess)
    contender.warm_up()
    turn = contender.take_turn(0.01)
    assert turn.samples / turn.steps == 8.0
    assert turn.updates * 4 * parts.joined_updates == turn.steps
    assert turn.cpu_share > 0.0
    contender.close()


def test_the_loop_learns() -> None:
    loop = PlainLoop(LoopParts(env=Native(8)), replace(TASK, capacity=500), seed=1)
    before = {name: value.clone() for name, value in loop._online.state_dict().items()}
    while loop.counters.updates < 20:
        loop.vector_step()
    assert all(not torch.equal(value, before[name]) for name, value in loop._online.state_dict().items())
    assert loop.scores.mean is not None
    loop.close()


def test_the_engine_has_the_regime_of_the_loop() -> None:
    for item in place_rungs():
        if not item.name.startswith(("engine", "batch-")):
            continue
        algorithm = settled_job(item.parts, PONG, seed=1).job.algorithm
        updates_per_step = algorithm.samples_per_step / algorithm.batch_size  # type: ignore[union-attr]
        assert updates_per_step == 1 / (4 * item.parts.joined_updates)
        assert algorithm.target_sync_updates is not None
        assert algorithm.target_sync_updates / updates_per_step == pytest.approx(PONG.target_sync_steps, rel=0.05)


def test_a_run_with_processes_computes_where_the_parts_do() -> None:
    for device in (OnHost(), OnGpu()):
        flags = train_flags(LoopParts(device=device), PONG, seed=1, log_dir=Path("runs"))
        assert flags[flags.index("--device") + 1] == str(device.device)
