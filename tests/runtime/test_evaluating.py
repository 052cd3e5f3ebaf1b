"""How the episodes of an evaluation are played."""

from typing import Any

import numpy as np
import torch

from redline.algorithms.q_learning import QLearning
from redline.exploration import Greedy
from redline.networks import Mlp, Noisy
from redline.runtime.evaluating import Player
from redline.types import EnvSpec, VectorStep

SPEC = EnvSpec(name="stub", frame_shape=(2,), frame_dtype="float32", stack=1, num_actions=2, frames_per_step=1)


class LanesOfUnequalLength:
    """A vector env whose lanes' episodes last 1, 2, 3 … steps; each pays 5 and costs a life at every step."""

    spec = SPEC
    protocol = "stub"

    def __init__(self, lengths: list[int]) -> None:
        self.num_envs = len(lengths)
        self.key_seed = np.arange(self.num_envs)
        self.steps_since_key = np.zeros(self.num_envs, np.int64)
        self._lengths = np.array(lengths)
        self._played = np.zeros(self.num_envs, np.int64)
        self.frames = np.zeros((self.num_envs, 2), np.float32)

    def reset(self) -> np.ndarray:
        return self.frames

    def send(self, actions: np.ndarray) -> None:
        self._played += 1

    def recv(self) -> VectorStep:
        ended = self._played >= self._lengths
        self._played[ended] = 0
        nothing = np.zeros(self.num_envs, np.bool_)
        reward = np.full(self.num_envs, 5.0, np.float32)
        return VectorStep(self.frames, reward, ended, nothing, ~ended, self.frames)


class CountingNetwork:
    """Remembers how often it was asked in this episode, and keeps what it was given to remember."""

    state_width = 1

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def parameters(self) -> Any:
        return iter([torch.zeros(1)])

    def step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen.append(state[:, 0].tolist())
        return torch.zeros(len(obs), 2, 1), state + 1.0


def play(lengths: list[int], num_episodes: int, network: Any = None) -> list[tuple[float, int]]:
    algorithm = QLearning(network=Mlp(widths=(8,)))
    network = network or algorithm.build_network(SPEC, torch.Generator())
    env: Any = LanesOfUnequalLength(lengths)
    player = Player(env, algorithm=algorithm, network=network, explore=Greedy(), epsilon=0.0, seed=0)
    played = player.play(num_episodes, progress=lambda share: None, requested_stop=lambda: None)
    return [(episode.total_reward, episode.length_steps) for episode in played]


def test_short_episodes_do_not_crowd_out_long_ones() -> None:
    lengths = [length for _, length in play([1, 10], 4)]
    assert sorted(lengths) == [1, 1, 10, 10]


def test_what_is_left_over_is_shared_out_among_the_first_lanes() -> None:
    lengths = [length for _, length in play([2, 3, 4], 5)]
    assert sorted(lengths) == [2, 2, 3, 3, 4]


def test_a_life_lost_ends_nothing_and_rewards_are_not_clipped() -> None:
    assert play([4], 2) == [(20.0, 4), (20.0, 4)]


def test_what_a_network_remembers_is_carried_and_ends_with_the_episode() -> None:
    network = CountingNetwork()
    play([2, 3], 4, network)
    assert network.seen == [[0, 0], [1, 1], [0, 2], [1, 0], [0, 1], [1, 2]]


def test_playing_draws_no_noise() -> None:
    network = QLearning(network=Mlp(widths=(8,)), layers=Noisy()).build_network(SPEC, torch.Generator())
    obs = torch.ones(1, 1, 2)
    silent = network(obs)
    play([2], 3, network)
    assert torch.equal(network(obs), silent)
    network.resample(np.random.default_rng(0))
    assert not torch.equal(network(obs), silent)
