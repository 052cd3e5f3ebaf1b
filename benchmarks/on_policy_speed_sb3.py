"""Worker of on_policy_speed.py: trains PPO or A2C with Stable-Baselines3 and prints what the window saw.

Its A2C has torch's RMSprop by default, as Redline's has. Differences that can't be set away: SB3 presses FIRE when a
game begins.
"""

import json

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.vec_env import VecEnv

from speed_sb3 import ENDLESS_STEPS, WindowCallback, make_env
from speed_setting import OnPolicySetting, setting_from_argv
from steady_window import SteadyWindow


class RolloutCallback(WindowCallback):
    """Reads the counters after every vector step; counts updates itself, because SB3 counts PPO's epochs instead."""

    updates = 0

    def _on_training_start(self) -> None:
        self.model.policy.optimizer.register_step_post_hook(self._count)

    def _count(self, *_: object) -> None:
        self.updates += 1

    def num_updates(self) -> int:
        return self.updates


def make_model(setting: OnPolicySetting, env: VecEnv) -> A2C | PPO:
    """Return the setting as SB3 understands it."""
    if setting.clip is None:
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
    """Train until the window closes."""
    setting = setting_from_argv(OnPolicySetting)
    env = make_env(setting)
    window = SteadyWindow(setting.seconds, setting.opens_at_steps, every_steps=setting.steps_per_rollout)
    make_model(setting, env).learn(ENDLESS_STEPS, callback=RolloutCallback(window), log_interval=1_000_000)
    env.close()
    print(json.dumps(window.row()))


if __name__ == "__main__":
    main()
