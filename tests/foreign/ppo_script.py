"""What a user of Stable-Baselines3 has: PPO on CartPole, alone or with the callback; the arguments say which."""

import sys

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure

folder = sys.argv[1] if len(sys.argv) > 1 else None
model = PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs=4), n_steps=256, n_epochs=4, seed=1, device="cpu")
callback = None
if folder is not None:
    from redline.monitor import MonitorCallback

    model.set_logger(configure(f"{folder}/sb3", ["csv", "stdout"]))
    callback = MonitorCallback(folder, hz=10)
model.learn(4_096, callback=callback)
