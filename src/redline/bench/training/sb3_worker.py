"""Trains with Stable-Baselines3 as its documentation shows, whenever it is its turn.

Its A2C has torch's RMSprop by default; Redline computes the same update through Adam's fused pass. Differences that
can't be set away: SB3's DQN clips the gradient's norm, and its Atari envs press FIRE when a game begins.
"""

from __future__ import annotations

import sys

import torch
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack

from redline.bench.training.settings import DqnSetting, OnPolicySetting, Setting, from_json
from redline.bench.training.turns import Turns
from redline.runs.host import usable_cores

VEC_ENVS: dict[str, type[DummyVecEnv] | type[SubprocVecEnv]] = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
ENDLESS_STEPS = 10_000_000


class TurnsCallback(BaseCallback):
    """Reads the counters after every vector step; counts updates itself, because SB3 counts PPO's epochs instead."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns
        self.updates = 0

    def _on_training_start(self) -> None:
        self.model.policy.optimizer.register_step_post_hook(self._count)

    def _count(self, *_: object) -> None:
        self.updates += 1

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:  # of Monitor, which sits below the clipping of rewards
                self.turns.add_return(float(info["episode"]["r"]))
        return not self.turns.read(steps=self.num_timesteps, updates=self.updates)


def make_env(setting: Setting) -> VecFrameStack:
    """Return Atari's preprocessing as SB3 has it, with a stack of four frames."""
    vec_env = make_atari_env(
        f"ale_py:{setting.env}",
        n_envs=setting.num_envs,
        seed=setting.seed,
        vec_env_cls=VEC_ENVS[setting.peer_vec_env],
    )
    return VecFrameStack(vec_env, n_stack=4)


def make_model(setting: Setting, env: VecEnv) -> A2C | DQN | PPO:
    """Return the setting as SB3 understands it; it computes on all cores, as Redline does, whatever the shell says."""
    torch.set_num_threads(usable_cores())
    if isinstance(setting, DqnSetting):
        return make_dqn(setting, env)
    return make_a2c(setting, env) if setting.clip is None else make_ppo(setting, env)


def make_dqn(setting: DqnSetting, env: VecEnv) -> DQN:
    """Return DQN with the updates of a vector step done after it."""
    return DQN(
        "CnnPolicy",
        env,
        learning_rate=setting.learning_rate,
        buffer_size=setting.replay_capacity,
        learning_starts=setting.warmup_steps,
        batch_size=setting.batch_size,
        gamma=setting.gamma,
        train_freq=(max(1, setting.steps_per_update // setting.num_envs), "step"),  # of the vector
        gradient_steps=max(1, setting.num_envs // setting.steps_per_update),
        target_update_interval=setting.target_sync_steps,
        exploration_fraction=setting.epsilon_over_steps / ENDLESS_STEPS,
        exploration_final_eps=setting.epsilon_end,
        policy_kwargs={"optimizer_kwargs": {"eps": setting.adam_eps}},
        seed=setting.seed,
        device="cpu",
    )


def make_a2c(setting: OnPolicySetting, env: VecEnv) -> A2C:
    """Return A2C."""
    return A2C(
        "CnnPolicy",
        env,
        learning_rate=setting.learning_rate,
        n_steps=setting.rollout_steps,
        gamma=setting.gamma,
        gae_lambda=setting.gae_lambda,
        ent_coef=setting.entropy_weight,
        vf_coef=setting.value_weight,
        max_grad_norm=setting.max_grad_norm,
        rms_prop_eps=setting.optimizer_eps,
        seed=setting.seed,
        device="cpu",
    )


def make_ppo(setting: OnPolicySetting, env: VecEnv) -> PPO:
    """Return PPO."""
    if setting.anneal_steps != ENDLESS_STEPS:
        raise ValueError(f"SB3 anneals over the whole training, {ENDLESS_STEPS:,} steps, not {setting.anneal_steps:,}")
    return PPO(
        "CnnPolicy",
        env,
        learning_rate=lambda share_left: share_left * setting.learning_rate,
        n_steps=setting.rollout_steps,
        batch_size=setting.batch_size,
        n_epochs=setting.epochs,
        gamma=setting.gamma,
        gae_lambda=setting.gae_lambda,
        clip_range=setting.clip,
        ent_coef=setting.entropy_weight,
        vf_coef=setting.value_weight,
        max_grad_norm=setting.max_grad_norm,
        policy_kwargs={"optimizer_class": torch.optim.Adam, "optimizer_kwargs": {"eps": setting.optimizer_eps}},
        seed=setting.seed,
        device="cpu",
    )


def main() -> None:
    """Train whenever it is its turn, until no more are wanted."""
    setting = from_json(sys.argv[1])
    env, turns = make_env(setting), Turns.of_this_process(setting)
    make_model(setting, env).learn(ENDLESS_STEPS, callback=TurnsCallback(turns), log_interval=1_000_000)
    env.close()


if __name__ == "__main__":
    main()
