"""Rollouts of real envs: what is kept of each step, when it is learnt from, and what a cut episode is worth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from redline.algorithms.named.a2c import A2C_CLASSIC
from redline.algorithms.named.ppo import PPO_CLASSIC
from redline.algorithms.named.pqn import PQN_CLASSIC
from redline.algorithms.on_policy import OnPolicy
from redline.envs.config import EnvConfig
from redline.networks import Mlp
from redline.runtime.building import build_trainer
from redline.runtime.config import Job
from redline.runtime.counters import counters_from_json, counters_to_json
from redline.runtime.resolve import resolve_job
from redline.runtime.training import Trainer
from redline.types import RolloutBatch, VectorStep

STACK, ENVS = 2, 3


def trainer_for(
    algorithm: OnPolicy, *, env: str = "probe/Counting-v0", anneal_at_return: float | None = None, **changes: Any
) -> Trainer:
    algorithm = replace(algorithm, **{"network": Mlp((16,)), **changes})
    job = Job(
        env=EnvConfig(env, stack=STACK, skip=1),
        algorithm=algorithm,
        num_envs=ENVS,
        anneal_at_return=anneal_at_return,
    )
    trainer = build_trainer(resolve_job(job), env_seed=1)
    trainer.begin()
    return trainer


class Log:
    """Keeps what a trainer receives, appends and learns from."""

    def __init__(self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[VectorStep] = []
        self.rows: list[dict[str, Any]] = []
        self.batches: list[tuple[int, RolloutBatch]] = []  # with the steps played before
        buffer = trainer.source.buffer  # type: ignore[attr-defined]
        recv, append, update = trainer.world.env.recv, buffer.append, trainer.learner.update

        def logged_recv() -> VectorStep:
            self.steps.append(recv())
            return self.steps[-1]

        def logged_append(**row: Any) -> None:
            self.rows.append({name: np.array(value) for name, value in row.items()})
            append(**row)

        def logged_update(batch: RolloutBatch, *, steps: int, **rest: Any) -> torch.Tensor:
            self.batches.append((steps, batch))
            return update(batch, steps=steps, **rest)

        monkeypatch.setattr(trainer.world.env, "recv", logged_recv)
        monkeypatch.setattr(buffer, "append", logged_append)
        monkeypatch.setattr(trainer.learner, "update", logged_update)


def values(trainer: Trainer, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        out = trainer.learner.online(torch.from_numpy(obs))
        found: np.ndarray = trainer.job.algorithm.objective.state_values(out).numpy()
    return found


@pytest.mark.parametrize("algorithm", [A2C_CLASSIC, PQN_CLASSIC])
def test_a_cut_episode_is_worth_its_final_frames_and_not_those_after_the_reset(
    algorithm: OnPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes of the env take 3, 1, 7, 2 and 5 steps, and every other one is cut."""
    trainer = trainer_for(algorithm, rollout_steps=20)
    log = Log(trainer, monkeypatch)
    for _ in range(20):
        trainer.vector_step()
    cuts = 0
    for t, (step, row) in enumerate(zip(log.steps, log.rows, strict=True)):
        for lane in range(ENVS):
            if not step.truncated[lane]:
                assert row["final_value"][lane] == 0.0
                continue
            cuts += 1
            final_obs = np.stack([row["obs"][lane, -1], step.frames[lane]])  # the newest frame seen, then the last
            expected = values(trainer, final_obs[None])[0]
            assert row["final_value"][lane] == pytest.approx(expected, rel=1e-4)
            assert step.frames[lane, 2] > 0 == step.first_frames[lane, 2]  # the frame stamps its t: 0 after the reset
            if t + 1 < len(log.rows):
                assert row["final_value"][lane] != pytest.approx(log.rows[t + 1]["value"][lane], rel=1e-4)
    assert cuts >= 2 * ENVS
    trainer.close()


def test_values_that_follow_are_those_of_what_really_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_for(A2C_CLASSIC, rollout_steps=20)
    log = Log(trainer, monkeypatch)
    for _ in range(20):
        trainer.vector_step()
    last = values(trainer, trainer.world.actor.obs)
    buffer = trainer.source.buffer  # type: ignore[attr-defined]
    rollout = buffer.rollout(last, gamma=0.9, trace=1.0, clip_rewards=False)
    for t, (step, row) in enumerate(zip(log.steps, log.rows, strict=True)):
        for lane in range(ENVS):
            if step.terminated[lane]:
                assert rollout.discount[t, lane] == 0.0
                continue
            assert rollout.discount[t, lane] == pytest.approx(0.9)
            followed = np.stack([row["obs"][lane, -1], step.frames[lane]])  # whatever happened to the episode then
            assert rollout.following[t, lane] == pytest.approx(values(trainer, followed[None])[0], rel=1e-4)
            assert rollout.trace[t, lane] == (0.0 if step.truncated[lane] else 1.0)
    trainer.close()


def test_a_full_rollout_is_learnt_from_before_the_next_action_and_then_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = trainer_for(PPO_CLASSIC, rollout_steps=8, epochs=3, batch_size=12)
    log = Log(trainer, monkeypatch)
    for _ in range(8):
        trainer.vector_step()
    assert log.batches == []
    trainer.vector_step()
    # 8 steps of 3 envs: 24 rows, 2 batches of 12, 3 epochs
    assert [(steps, len(batch.action)) for steps, batch in log.batches] == [(24, 12)] * 6
    assert trainer.source.buffer.filled_steps == 1  # type: ignore[attr-defined]
    for epoch in range(3):
        actions = torch.cat([batch.obs for _, batch in log.batches[2 * epoch : 2 * epoch + 2]])
        played = np.concatenate([row["obs"] for row in log.rows[:8]])
        assert sorted(map(tuple, actions.flatten(1).tolist())) == sorted(map(tuple, played.reshape(24, -1).tolist()))
    orders = {batch.advantage.numpy().tobytes() for _, batch in log.batches}
    assert len(orders) == 6  # another order each time
    assert (trainer.counters.updates, trainer.counters.samples) == (6, 72)
    trainer.close()


def test_the_next_action_comes_from_the_newest_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_for(A2C_CLASSIC, env="CartPole-v1", rollout_steps=4, epochs=1, batch_size=12)
    log = Log(trainer, monkeypatch)
    for _ in range(4):
        trainer.vector_step()
    obs = trainer.world.actor.obs.copy()
    before = values(trainer, obs)
    trainer.vector_step()
    assert len(log.batches) == 1
    np.testing.assert_allclose(log.rows[4]["value"], values(trainer, obs), rtol=1e-5)
    assert (log.rows[4]["value"] != before).all()
    trainer.close()


def test_probabilities_are_those_of_the_policy_that_acted(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_for(PPO_CLASSIC, env="CartPole-v1", rollout_steps=8)
    log = Log(trainer, monkeypatch)
    for _ in range(8):
        trainer.vector_step()
    for row in log.rows:
        with torch.no_grad():
            log_policy = trainer.learner.online(torch.from_numpy(row["obs"]))[:, :-1].log_softmax(1).numpy()
        np.testing.assert_allclose(row["log_probability"], log_policy[np.arange(ENVS), row["action"]], rtol=1e-4)
    played = [row["log_probability"] for row in log.rows]
    assert trainer.source.entropy_nats is None
    trainer.vector_step()  # the rollout is full: it is learnt from, and told of
    assert trainer.source.entropy_nats == pytest.approx(-np.mean(played), rel=1e-5)
    trainer.close()


def test_a_batch_size_that_does_not_divide_the_rollout_is_changed_aloud() -> None:
    algorithm = replace(A2C_CLASSIC, rollout_steps=5, batch_size=30)
    settled = resolve_job(Job(env=EnvConfig("CartPole-v1", stack=1, skip=1), algorithm=algorithm, num_envs=8))
    # 8 envs × 5 steps are 40 rows: two batches of 20
    assert settled.job.algorithm.batch_size == 20
    (adjustment,) = (item for item in settled.adjustments if item.setting == "batch-size")
    assert (adjustment.requested, adjustment.effective) == ("30", "20")


def test_what_acting_computed_is_learnt_from_where_a_rollout_is_learnt_from_once() -> None:
    keeping, asking = (trainer_for(A2C_CLASSIC, network=Mlp((16, 16))) for _ in range(2))
    asking.source.keeps_features = False  # type: ignore[misc]
    torso_calls = {id(trainer): 0 for trainer in (keeping, asking)}

    def count(trainer: Trainer) -> None:
        torso_calls[id(trainer)] += 1

    rollouts, steps = 3, A2C_CLASSIC.rollout_steps
    for trainer in (keeping, asking):
        trainer.learner.online.torso.register_forward_pre_hook(lambda *_, trainer=trainer: count(trainer))
        for _ in range(rollouts * steps + 1):  # a rollout is learnt from before the step after it
            trainer.vector_step()
        assert trainer.counters.updates == rollouts
    assert torso_calls[id(asking)] - torso_calls[id(keeping)] == rollouts + 1  # the first update is diagnosed
    for mine, other in zip(keeping.learner.online.parameters(), asking.learner.online.parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [(PPO_CLASSIC, {}), (A2C_CLASSIC, {"epochs": 2}), (A2C_CLASSIC, {"rollout_steps": 200, "batch_size": 600})],
)
def test_nothing_is_kept_that_would_be_old_or_large(algorithm: OnPolicy, changes: dict[str, int]) -> None:
    assert not trainer_for(algorithm, **changes).source.keeps_features


@pytest.mark.parametrize("at_return", [-1e9, 1e9, None])
def test_schedules_skip_ahead_when_ten_episodes_return_enough(
    at_return: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = replace(PPO_CLASSIC.optimizer, anneal_after_steps=1_000_000, anneal_steps=1_000_000)
    trainer = trainer_for(PPO_CLASSIC, anneal_at_return=at_return, optimizer=later, rollout_steps=4, batch_size=12)
    log, lead_at = Log(trainer, monkeypatch), {}
    while trainer.counters.episodes < 20:
        trainer.vector_step()
        lead_at[trainer.counters.episodes] = trainer.counters.schedule_steps - trainer.counters.steps
    trainer.close()
    assert all(lead == 0 for episodes, lead in lead_at.items() if episodes < 10)
    began = next((steps for steps, _ in log.batches if steps >= 1_000_000), None)
    assert (began is not None) == (at_return == -1e9)
    assert (lead_at[trainer.counters.episodes] > 0) == (at_return == -1e9)
    lr = trainer.learner.optimizer.param_groups[0]["lr"]
    assert lr == later.lr_at(log.batches[-1][0])
    assert (lr < later.lr_at(0)) == (at_return == -1e9)
    restored, _ = counters_from_json(counters_to_json(trainer.counters, trainer.scores))
    assert restored.schedule_steps == trainer.counters.schedule_steps
