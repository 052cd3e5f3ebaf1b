"""Worker of on_policy_speed.py: trains PPO or A2C with Redline and prints what the window saw."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from redline.algorithms.named.a2c import A2C
from redline.algorithms.named.ppo import PPO
from redline.algorithms.objectives import Clipped, PolicyGradient
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.optimizers import Adam, Rmsprop
from redline.envs.config import EnvConfig
from redline.returns import Traces
from redline.runtime.job import Job
from speed_redline import watch
from speed_setting import OnPolicySetting, setting_from_argv
from steady_window import SteadyWindow


def make_algorithm(setting: OnPolicySetting) -> OnPolicy:
    """Return the algorithm as Redline's catalog has it, with the setting's numbers."""
    pace = {"lr": setting.learning_rate, "eps": setting.optimizer_eps, "clip_norm": setting.max_grad_norm}
    weights = {"entropy_weight": setting.entropy_weight, "value_weight": setting.value_weight}
    is_ppo = setting.clip is not None
    return replace(
        PPO if is_ppo else A2C,
        objective=PolicyGradient(**weights) if setting.clip is None else Clipped(setting.clip, **weights),
        optimizer=(Adam if is_ppo else Rmsprop)(**pace, anneal_steps=setting.anneal_steps),
        returns=Traces(trace=setting.gae_lambda, gamma=setting.gamma),
        rollout_steps=setting.rollout_steps,
        epochs=setting.epochs,
        batch_size=setting.batch_size,
    )


def main() -> None:
    """Train and print what the window saw."""
    setting = setting_from_argv(OnPolicySetting)
    window = SteadyWindow(setting.seconds, setting.opens_at_steps, every_steps=setting.steps_per_rollout)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            env=EnvConfig(id=setting.env),
            algorithm=make_algorithm(setting),
            num_envs=setting.num_envs,
            seed=setting.seed,
            device="cpu",
            log_dir=Path(folder),
        )
        watch(job, setting.algorithm, window)
    print(json.dumps(window.row()))


if __name__ == "__main__":
    main()
