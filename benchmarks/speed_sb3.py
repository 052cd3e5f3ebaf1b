"""Worker of dqn_speed.py: trains with Stable-Baselines3 as its documentation shows, and prints what the window saw.

Differences that can't be set away: SB3 clips the gradient's norm, and presses FIRE when a game begins.
"""

import json

from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

from speed_setting import OnPolicySetting, SpeedSetting, setting_from_argv
from steady_window import SteadyWindow

VEC_ENVS: dict[str, type[DummyVecEnv] | type[SubprocVecEnv]] = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
ENDLESS_STEPS = 10_000_000


class WindowCallback(BaseCallback):
    """Reads the counters after every vector step."""

    def __init__(self, window: SteadyWindow) -> None:
        super().__init__()
        self.window = window

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:  # of Monitor, which sits below the clipping of rewards
                self.window.add_return(float(info["episode"]["r"]))
        return not self.window.read(steps=self.num_timesteps, updates=self.num_updates())

    def num_updates(self) -> int:
        """Return the updates done so far."""
        return int(self.model._n_updates)


def make_env(setting: SpeedSetting | OnPolicySetting) -> VecFrameStack:
    """Return Atari's preprocessing as SB3 has it, with a stack of four frames."""
    vec_env = make_atari_env(
        f"ale_py:{setting.env}",
        n_envs=setting.num_envs,
        seed=setting.seed,
        vec_env_cls=VEC_ENVS[setting.peer_vec_env],
    )
    return VecFrameStack(vec_env, n_stack=4)


def main() -> None:
    """Train until the window closes."""
    setting = setting_from_argv(SpeedSetting)
    env = make_env(setting)
    model = DQN(
        "CnnPolicy",
        env,
        learning_rate=setting.learning_rate,
        buffer_size=setting.replay_capacity,
        learning_starts=setting.warmup_steps,
        batch_size=setting.batch_size,
        gamma=setting.gamma,
        train_freq=(1, "step"),  # of the vector
        gradient_steps=setting.num_envs // setting.steps_per_update,
        target_update_interval=setting.target_sync_steps,
        exploration_fraction=setting.epsilon_over_steps / ENDLESS_STEPS,
        exploration_final_eps=setting.epsilon_end,
        policy_kwargs={"optimizer_kwargs": {"eps": setting.adam_eps}},
        seed=setting.seed,
        device="cpu",
    )
    window = SteadyWindow(setting.seconds, setting.opens_at_steps)
    model.learn(ENDLESS_STEPS, callback=WindowCallback(window), log_interval=1_000_000)
    env.close()
    print(json.dumps(window.row()))


if __name__ == "__main__":
    main()
