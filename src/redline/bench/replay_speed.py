"""`redline bench replay`: how many bytes a transition takes, and how fast the replay memory samples and inserts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from redline.bench.measuring import Contender, Progress, alternate, rate_of, silent
from redline.bench.played_games import LANES, STACK, PlayedGame, play_game
from redline.bench.results import result_head
from redline.errors import UserError
from redline.replay import BatchBuffers, BatchLoader, ReplayLayout, ReplayMemory, UniformSampler, gather
from redline.replay.prioritized import PrioritizedSampler
from redline.types import Batch, Draw, Handles

GAMES = (
    "pong",
    "breakout",
    "alien",
    "ms_pacman",
    "seaquest",
    "space_invaders",
    "beam_rider",
    "enduro",
    "asteroids",
    "boxing",
    "freeway",
    "krull",
    "yars_revenge",
)
SAMPLED_GAME = "pong"
MIN_TRANSITIONS = 1_000
BATCH_SIZE = 32
GAMMA = 0.99
ALPHA, BETA = 0.5, 0.4
SEED = 1
SAMPLERS = {"uniform": False, "prioritized": True}
PREFETCH = {"off": 0, "on": 4}
INSERTED_STEPS = 250  # of each lane in one go
CODECS = {"raw": "raw", "zstd": "zstd", "lz4": "lz4", "disk": "zstd"}  # `disk` lies in the folder of --path
GOAL_BYTES, GOAL_PONG_BATCHES, GOAL_WORST_BATCHES = 450, 400, 180


@dataclass(frozen=True)
class ReplayBench:
    """What is measured, and for how long."""

    games: Sequence[str] = GAMES
    transitions: int = 20_000  # played of each game
    rounds: int = 7
    turn_s: float = 0.4  # of each contender in each round
    path: Path = Path()  # folder on the disk that is measured
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.games:
            raise UserError("no game is named: use --games pong,breakout")
        if self.transitions < MIN_TRANSITIONS:
            raise UserError(f"transitions is {self.transitions}: use {MIN_TRANSITIONS:_} or more")
        if self.rounds < 1:
            raise UserError(f"rounds is {self.rounds}: use 1 or more")
        if not self.path.is_dir():
            raise UserError(f"path {self.path} is no folder: use one on the disk to be measured")

    def run(self, progress: Progress = silent) -> dict[str, Any]:
        """Measure everything and return it as one plain object."""
        begin_s = time.perf_counter()
        with ExitStack() as stack:
            bytes_of, played, worst_game, worst_memory = self._play_all(progress, stack)
            progress(f"filling memories with {played.game}")
            memories = self._fill(played, stack)
            staging = staging_bytes(memories["zstd"])
            rates = self._sample(memories | {"worst": worst_memory}, stack, progress)
            progress("inserting")
            inserts = self._insert(played, stack)
        worst_rates = rates.pop("worst")
        result = {
            **result_head(),
            "config": {
                "games": list(self.games),
                "transitions_per_game": played.num_transitions,
                "lanes": LANES,
                "batch_size": BATCH_SIZE,
                "rounds": self.rounds,
                "turn_s": self.turn_s,
                "seed": self.seed,
                "sampled_game": played.game,
                "low_high": "90 % of the rounds",
            },
            "bytes_per_transition": bytes_of,
            "staging_bytes": staging,
            "batches_per_s": rates,
            "batches_per_s_worst_game": {"game": worst_game, "zstd": worst_rates},
            "insert_steps_per_s": inserts,
        }
        return {**result, "goals": goals(result), "duration_s": time.perf_counter() - begin_s}

    def _play_all(self, progress: Progress, stack: ExitStack) -> tuple[dict[str, float], PlayedGame, str, ReplayMemory]:
        """Measure each game's bytes; return them, the game to sample from, and the name and memory of the worst."""
        bytes_of: dict[str, float] = {}
        sampled: PlayedGame | None = None
        worst: tuple[str, ReplayMemory] | None = None
        for number, game in enumerate(self.games):
            progress(f"playing {game}, {number + 1} of {len(self.games)}")
            played = play_game(game, num_transitions=self.transitions, seed=self.seed)
            memory = filled_memory(played, codec="zstd")
            bytes_of[game] = bytes_per_transition(memory)
            if sampled is None or game == SAMPLED_GAME:
                sampled = played
            if worst is None or bytes_of[game] > bytes_of[worst[0]]:
                if worst is not None:
                    worst[1].close()
                worst = game, memory
            else:
                memory.close()
        assert sampled is not None  # noqa: S101 - there is at least one game
        assert worst is not None  # noqa: S101
        stack.callback(worst[1].close)
        figures = list(bytes_of.values())
        return {**bytes_of, "mean": sum(figures) / len(figures), "worst": max(figures)}, sampled, *worst

    def _fill(self, played: PlayedGame, stack: ExitStack) -> dict[str, ReplayMemory]:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=self.path, prefix=".redline-bench-"))
        memories = {}
        for name, codec in CODECS.items():
            memories[name] = filled_memory(played, codec=codec, path=Path(folder) if name == "disk" else None)
            stack.callback(memories[name].close)
        return memories

    def _sample(self, memories: Mapping[str, ReplayMemory], stack: ExitStack, progress: Progress) -> dict[str, Any]:
        """Sample from all memories by turns; return the rates by memory, sampler and prefetch."""
        keys = [(name, sampler, state) for name in CODECS for sampler in SAMPLERS for state in PREFETCH]
        keys += [("worst", "uniform", state) for state in PREFETCH]
        contenders: dict[str, Contender] = {}
        for name, sampler, state in keys:
            sampling = Sampling(memories[name], prioritized=SAMPLERS[sampler], prefetch=PREFETCH[state])
            stack.callback(sampling.close)
            contenders[f"{name} {sampler} {state}"] = sampling
        measured = alternate(
            contenders, rounds=self.rounds, turn_s=self.turn_s, progress=lambda text: progress(f"sampling, {text}")
        )
        rates: dict[str, Any] = {}
        for name, sampler, state in keys:
            rate = rate_of(measured[f"{name} {sampler} {state}"]).as_dict()
            rates.setdefault(name, {}).setdefault(sampler, {})[state] = rate
        return rates

    def _insert(self, played: PlayedGame, stack: ExitStack) -> dict[str, dict[str, float]]:
        """Append to full memories, by turns."""
        num_steps = min(INSERTED_STEPS, played.num_steps)
        contenders = {name: _inserting(memory, played, num_steps) for name, memory in self._fill(played, stack).items()}
        measured = alternate(contenders, rounds=self.rounds, turn_s=self.turn_s)
        scale = num_steps * played.lanes
        return {name: rate_of([scale * value for value in rounds]).as_dict() for name, rounds in measured.items()}


def goals(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Compare the result with its goals; `met` is None where this run can't tell."""
    is_whole = set(GAMES) <= set(result["config"]["games"])
    mean_bytes = result["bytes_per_transition"]["mean"]
    pong = result["batches_per_s"]["zstd"]["uniform"]["off"]["median"]
    worst = result["batches_per_s_worst_game"]["zstd"]["uniform"]["off"]["median"]
    return {
        "mean_bytes_per_transition": {
            "value": mean_bytes,
            "goal": GOAL_BYTES,
            "met": mean_bytes <= GOAL_BYTES if is_whole else None,
        },
        "zstd_batches_per_s": {"value": pong, "goal": GOAL_PONG_BATCHES, "met": pong >= GOAL_PONG_BATCHES},
        "zstd_worst_game_batches_per_s": {
            "value": worst,
            "goal": GOAL_WORST_BATCHES,
            "met": worst >= GOAL_WORST_BATCHES if is_whole else None,
        },
    }


def filled_memory(played: PlayedGame, *, codec: str, path: Path | None = None) -> ReplayMemory:
    """Return a memory that holds the whole game."""
    layout = ReplayLayout(
        capacity=played.num_transitions,
        frame_shape=played.frames.shape[2:],
        frame_dtype=str(played.frames.dtype),
        stack=STACK,
        lanes=played.lanes,
        codec=codec,
        path=path,
    )
    memory = ReplayMemory(layout)
    played.put_into(memory)
    return memory


def staging_bytes(memory: ReplayMemory) -> int:
    """Return the bytes of the buffers in which chunks are written: the same for any capacity."""
    layout = memory.layout
    return layout.num_stages * layout.frames_per_chunk * layout.frame_bytes


def bytes_per_transition(memory: ReplayMemory) -> float:
    """Return the bytes of a transition, with everything stored beside its frame, without the staging buffers."""
    return (memory.used_bytes - staging_bytes(memory)) / memory.num_transitions


class Sampling:
    """Draws batches and hands over state and next state, as a learner needs them."""

    def __init__(self, memory: ReplayMemory, *, prioritized: bool, prefetch: int) -> None:
        self._memory = memory
        self._rng = np.random.default_rng(SEED)
        self._priorities = self._rng.random((64, BATCH_SIZE))
        self._uniform = UniformSampler(memory)
        self._prioritized = PrioritizedSampler(memory, alpha=ALPHA) if prioritized else None
        self._prefetch = prefetch
        self._loader: BatchLoader[Batch] | None = None
        if prefetch:
            self._loader = BatchLoader(
                memory,
                make_buffers=lambda: BatchBuffers(memory.layout, batch_size=BATCH_SIZE),
                gamma=GAMMA,
                clip_rewards=True,
                prefetch=prefetch,
            )
        self._buffers = BatchBuffers(memory.layout, batch_size=BATCH_SIZE)
        self.last: tuple[torch.Tensor, torch.Tensor] | None = None  # the newest state and next state

    def __call__(self, count: int) -> None:
        """Take `count` batches, and none that is only drawn ahead."""
        if self._loader is None:
            for i in range(count):
                draw = self._draw()
                batch = gather(self._memory, draw, gamma=GAMMA, clip_rewards=True, out=self._buffers)
                self._hand_over(batch, draw.handles, i)
            return
        for _ in range(min(self._prefetch, count)):
            self._loader.submit(self._draw())
        for i in range(count):
            if i + self._prefetch < count:
                self._loader.submit(self._draw())
            ((draw, batch),) = self._loader.take(1)
            self._hand_over(batch, draw.handles, i)

    def close(self) -> None:
        """End the thread that gathers."""
        if self._loader is not None:
            self._loader.close()

    def _draw(self) -> Draw:
        if self._prioritized is not None:
            return self._prioritized.draw(self._rng, BATCH_SIZE, beta=BETA)
        return self._uniform.draw(self._rng, BATCH_SIZE)

    def _hand_over(self, batch: Batch, handles: Handles, number: int) -> None:
        # one step: the next state begins one frame later in every row
        self.last = batch.frames[:, :STACK], batch.frames[:, 1:]
        if self._prioritized is not None:
            self._prioritized.update(handles, self._priorities[number % len(self._priorities)])


def _inserting(memory: ReplayMemory, played: PlayedGame, num_steps: int) -> Contender:
    """Return a contender that appends the first `num_steps` of each lane to a full memory."""

    def insert(count: int) -> None:
        for _ in range(count):
            played.put_into(memory, num_steps=num_steps)

    return insert
