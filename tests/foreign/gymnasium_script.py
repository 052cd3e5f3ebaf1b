"""What a user of Gymnasium alone has: random play; with an argument, through the wrappers into that folder."""

import sys
import time

import gymnasium as gym

folder = sys.argv[1] if len(sys.argv) > 1 else None
env = gym.make("CartPole-v1")
vector = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
if folder is not None:
    from redline.monitor import MonitorEnv, MonitorVectorEnv

    env = MonitorEnv(env, f"{folder}/one", hz=20)
    vector = MonitorVectorEnv(vector, f"{folder}/vector", hz=20)
env.reset(seed=1)
vector.reset(seed=1)
end_s = time.monotonic() + 1.0
while time.monotonic() < end_s:
    _, _, terminated, truncated, _ = env.step(env.action_space.sample())
    if terminated or truncated:
        env.reset()
    vector.step(vector.action_space.sample())
env.close()
vector.close()
