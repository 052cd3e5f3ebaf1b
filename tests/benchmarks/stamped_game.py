"""A made-up game whose frames say which they are, so that any sampled pair can be looked up."""

import numpy as np
import torch

from redline.bench.replay_speed import PlayedGame
from redline.types import Array, EnvSpec, VectorStep
from replay_memories import transitions

SIDE = 8
STACK = 4
Stack = tuple[int, ...]  # numbers of the frames, 0 for one of zeros


def stamp(numbers: Array) -> Array:
    """Return frames [*, SIDE, SIDE] that carry `numbers` [*] in their first three pixels."""
    frames = np.zeros((*numbers.shape, SIDE, SIDE), np.uint8)
    for pixel in range(3):
        frames[..., 0, pixel] = numbers >> (8 * pixel) & 255
    frames[..., 1:, :] = (numbers % 251 + 1)[..., None, None]  # the rest must move along
    return frames


def read(stacks: torch.Tensor) -> list[Stack]:
    """Return the numbers in stacks [B, K, SIDE, SIDE], after checking that no frame is a mix of two."""
    frames = stacks.numpy().astype(np.int64)
    numbers = sum(frames[..., 0, pixel] << (8 * pixel) for pixel in range(3))
    rest = np.where(numbers > 0, numbers % 251 + 1, 0)
    assert (frames[..., 1:, :] == rest[..., None, None]).all()
    return [tuple(row) for row in numbers.tolist()]


def stamped_game(*, num_steps: int = 240, lanes: int = 3, seed: int = 0) -> PlayedGame:
    """Return a game with episodes of 1 to 30 steps."""
    rng = np.random.default_rng(seed)
    shape = (num_steps, lanes)
    left = rng.integers(1, 31, lanes)
    terminated = np.zeros(shape, np.bool_)
    numbers = 1_000_000 * np.arange(1, lanes + 1) + np.arange(1, num_steps + 1)[:, None] * 2  # even: after an action
    for t in range(num_steps):
        left -= 1
        terminated[t] = left == 0
        if terminated[t].any():
            left[terminated[t]] = rng.integers(1, 31, int(terminated[t].sum()))
    never = np.zeros(lanes, np.bool_)
    steps = [
        VectorStep(
            frames=stamp(numbers[t]),
            reward=rng.random(lanes).astype(np.float32),
            terminated=terminated[t],
            truncated=never,
            life_lost=never,
            first_frames=stamp(numbers[t] + terminated[t]),  # odd: first of an episode
        )
        for t in range(num_steps)
    ]
    return PlayedGame(
        game="stamped",
        spec=EnvSpec(
            "stamped", frame_shape=(SIDE, SIDE), frame_dtype="uint8", stack=STACK, num_actions=4, frames_per_step=1
        ),
        first_frames=stamp(1_000_000 * np.arange(1, lanes + 1) + 1),
        actions=rng.integers(4, size=shape),
        steps=steps,
    )


def true_pairs(played: PlayedGame) -> dict[tuple[Stack, Stack], bool]:
    """Return all pairs of states that were really seen, and whether the episode ended between them."""
    pairs = {}
    for step in transitions(played):
        states, next_states = read(torch.from_numpy(step.state)), read(torch.from_numpy(step.next_state))
        for state, next_state, done in zip(states, next_states, step.done.tolist(), strict=True):
            pairs[state, next_state] = done
    return pairs
