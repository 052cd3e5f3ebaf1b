"""The schedule: act, send, learn from what was complete before, receive, append."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.envs.config import EnvConfig
from redline.exploration import EpsilonGreedy
from redline.learner import NonFiniteError
from redline.replay import ReplayConfig
from redline.runtime.building import build_trainer
from redline.runtime.config import Job
from redline.runtime.resolve import resolve_job
from redline.runtime.training import Trainer
from redline.schedules import Linear
from redline.types import Batch, IntArray, VectorStep


def trainer_for(**changes: Any) -> Trainer:
    explore = EpsilonGreedy(Linear(1.0, 0.02, over_steps=5_000))
    algorithm = replace(DQN_CLASSIC, explore=explore, warmup_steps=40, batch_size=16, samples_per_step=4.0, **changes)
    job = Job(env=EnvConfig("CartPole-v1", stack=1, skip=1), algorithm=algorithm, num_envs=4)
    trainer = build_trainer(resolve_job(job), env_seed=1)
    trainer.begin()
    return trainer


def test_the_envs_step_while_the_learner_learns_from_what_was_complete_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = trainer_for()
    log: list[str] = []
    send, recv, update = trainer.world.env.send, trainer.world.env.recv, trainer.learner.update

    def logged_send(actions: IntArray) -> None:
        log.append("send")
        send(actions)

    def logged_recv() -> VectorStep:
        log.append("recv")
        return recv()

    def logged_update(batch: Batch, **when: Any) -> object:
        log.append(f"update of {trainer.source.memory.num_transitions}")
        return update(batch, **when)

    monkeypatch.setattr(trainer.world.env, "send", logged_send)
    monkeypatch.setattr(trainer.world.env, "recv", logged_recv)
    monkeypatch.setattr(trainer.learner, "update", logged_update)
    for _ in range(13):
        trainer.vector_step()
    # 40 steps of warm-up are 10 vector steps; the first earned update runs in the vector step after 44 steps
    assert log[: 2 * 11] == ["send", "recv"] * 11
    assert log[2 * 11 :] == ["send", "update of 44", "recv", "send", "update of 48", "recv"]
    trainer.close()


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_rows_are_drawn_exactly_so_many_updates_ahead(prefetch: int) -> None:
    trainer = trainer_for(replay=ReplayConfig(capacity=2_000, prefetch=prefetch))
    for _ in range(100):
        trainer.vector_step()
    assert trainer.counters.updates > 50
    assert trainer.counters.batches_drawn == trainer.counters.updates + prefetch
    assert len(trainer.source.loader.pending) == prefetch
    trainer.close()


def test_counters_agree_with_the_memory_and_the_ratio_with_the_request() -> None:
    trainer = trainer_for()
    episodes = [episode for _ in range(300) for episode in trainer.vector_step()]
    counters = trainer.counters
    assert counters.steps == 1_200 == trainer.source.memory.num_transitions
    assert counters.episodes == len(episodes) > 10
    assert counters.samples == counters.updates * 16
    assert trainer.source.pacing.achieved(steps=counters.steps, samples=counters.samples) == pytest.approx(
        4.0, rel=0.02
    )
    trainer.close()


def test_epsilon_is_one_during_the_warm_up_and_follows_the_steps_afterwards() -> None:
    trainer = trainer_for()
    assert trainer.epsilon == 1.0
    for _ in range(10):
        trainer.vector_step()
    assert trainer.epsilon == pytest.approx(1.0 - 0.98 * 40 / 5_000)
    trainer.close()


def test_a_loss_that_is_no_number_stops_with_step_and_batch() -> None:
    trainer = trainer_for()
    for _ in range(20):
        trainer.vector_step()
    trainer.check_loss(0.5)
    with pytest.raises(NonFiniteError, match=r"loss is nan at step 80, update .* last batch: .*reward 1 … 1"):
        trainer.check_loss(float("nan"))
    trainer.close()


def test_pictures_of_forty_pixels_and_three_frames_train_too(tmp_path: Path) -> None:
    from redline.algorithms.named.dqn import DQN
    from redline.networks import Small

    algorithm = replace(DQN, network=Small(), warmup_steps=40, replay=ReplayConfig(capacity=1_000))
    job = Job(env=EnvConfig("breakout", size=40, stack=3), algorithm=algorithm, num_envs=2)
    trainer = build_trainer(resolve_job(job), env_seed=1)
    trainer.begin()
    for _ in range(40):
        trainer.vector_step()
    assert trainer.world.actor.obs.shape == (2, 3, 40, 40)
    assert trainer.counters.updates == 9
    assert trainer.learner.non_finite_weights() == []
    trainer.close()
