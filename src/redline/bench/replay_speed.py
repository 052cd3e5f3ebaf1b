"""`redline bench replay`: how many bytes a transition takes, and how fast the replay memory samples and inserts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from redline.bench.measuring import Contender, Measuring, Progress, alternate, rate_of, silent
from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.errors import UserError, check_range
from redline.replay import BatchBuffers, BatchLoader, PrioritizedSampler, ReplayMemory, Sampler, UniformSampler
from redline.runtime.replay_sizing import layout_for
from redline.types import Array, Batch, EnvSpec, IntArray, VectorStep

GAMES = (
    *("pong", "breakout", "alien", "ms_pacman", "seaquest", "space_invaders", "beam_rider", "enduro", "asteroids"),
    *("boxing", "freeway", "krull", "yars_revenge"),
)
SAMPLED_GAME = "pong"
LANES = 8
STACK = 4
MIN_TRANSITIONS = 1_000
BATCH_SIZE = 32
GAMMA = 0.99
ALPHA, BETA = 0.5, 0.4
SEED = 1
PREFETCH = {"off": 0, "on": 4}
INSERTED_STEPS = 250  # of each lane at once
CODECS = {"raw": "raw", "zstd": "zstd", "lz4": "lz4", "disk": "zstd"}  # `disk` lies in the folder of --path
SAMPLED = [(name, sampler, state) for name in CODECS for sampler in ("uniform", "prioritized") for state in PREFETCH]
SAMPLED += [("worst", "uniform", state) for state in PREFETCH]  # the game that takes most
GOAL_BYTES, GOAL_PONG_BATCHES, GOAL_WORST_BATCHES = 450, 400, 180


@dataclass(frozen=True)
class ReplayBench:
    """The options of the bench."""

    games: Sequence[str] = GAMES
    transitions: int = 20_000  # of each game
    rounds: int = 7
    turn_s: float = 0.4  # of each contender in each round
    path: Path = Path()  # folder on the disk that is measured
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.games:
            raise UserError("no game is named: use --games pong,breakout")
        check_range("transitions", self.transitions, MIN_TRANSITIONS)
        if not self.path.is_dir():
            raise UserError(f"path {self.path} is no folder: use one on the disk to be measured")

    def run(self, progress: Progress = silent) -> dict[str, Any]:
        """Measure and return all figures."""
        measuring = Measuring()
        sizes = self._weigh_games(progress)
        worst_game = max(sizes, key=lambda game: sizes[game])
        with ExitStack() as stack:
            sampled_game = SAMPLED_GAME if SAMPLED_GAME in self.games else self.games[0]
            progress(f"filling memories with {sampled_game}")
            played, worst = self._play(sampled_game), self._play(worst_game)
            memories = self._fill(played, stack)
            memories["worst"] = stack.enter_context(closing(filled_memory(worst, codec="zstd")))
            staging = staging_bytes(memories["zstd"])
            rates = self._sample(memories, stack, progress)
            progress("inserting")
            inserts = self._insert(played, stack)
        found = {
            "config": {
                "games": list(self.games),
                "transitions_per_game": played.num_transitions,
                "lanes": LANES,
                "batch_size": BATCH_SIZE,
                "rounds": self.rounds,
                "turn_s": self.turn_s,
                "seed": self.seed,
                "sampled_game": sampled_game,
                "low_high": "90 % of the rounds",
            },
            "bytes_per_transition": {**sizes, "mean": fmean(sizes.values()), "worst": sizes[worst_game]},
            "staging_bytes": staging,
            "batches_per_s_worst_game": {"game": worst_game, "zstd": rates.pop("worst")},
            "batches_per_s": rates,
            "insert_steps_per_s": inserts,
        }
        return measuring.result({**found, "goals": goals(found)}, others_percent=measuring.others_percent())

    def _play(self, game: str) -> PlayedGame:
        return play_game(game, num_transitions=self.transitions, seed=self.seed)

    def _weigh_games(self, progress: Progress) -> dict[str, float]:
        """Return the bytes per transition of each game."""
        sizes = {}
        for number, game in enumerate(self.games, start=1):
            progress(f"playing {game}, {number} of {len(self.games)}")
            with closing(filled_memory(self._play(game), codec="zstd")) as memory:
                sizes[game] = bytes_per_transition(memory)
        return sizes

    def _fill(self, played: PlayedGame, stack: ExitStack) -> dict[str, ReplayMemory]:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.path, prefix=".redline-bench-")))
        return {
            name: stack.enter_context(
                closing(filled_memory(played, codec=codec, path=folder if name == "disk" else None))
            )
            for name, codec in CODECS.items()
        }

    def _sample(self, memories: Mapping[str, ReplayMemory], stack: ExitStack, progress: Progress) -> dict[str, Any]:
        """Sample from all memories in turn; return the rates by memory, sampler and prefetch."""
        contenders: dict[str, Contender] = {}
        for name, sampler, state in SAMPLED:
            sampling = Sampling(memories[name], prioritized=sampler == "prioritized", prefetch=PREFETCH[state])
            stack.callback(sampling.close)
            contenders[f"{name} {sampler} {state}"] = sampling
        measured = alternate(
            contenders, rounds=self.rounds, turn_s=self.turn_s, progress=lambda text: progress(f"sampling, {text}")
        )
        rates: dict[str, Any] = {}
        for name, sampler, state in SAMPLED:
            rate = rate_of(measured[f"{name} {sampler} {state}"])
            rates.setdefault(name, {}).setdefault(sampler, {})[state] = rate
        return rates

    def _insert(self, played: PlayedGame, stack: ExitStack) -> dict[str, dict[str, float]]:
        """Append to full memories, in turn."""
        piece = replace(played, steps=played.steps[:INSERTED_STEPS])

        def inserting(memory: ReplayMemory) -> Contender:
            def insert(count: int) -> None:
                for _ in range(count):
                    piece.put_into(memory)

            return insert

        contenders = {name: inserting(memory) for name, memory in self._fill(played, stack).items()}
        measured = alternate(contenders, rounds=self.rounds, turn_s=self.turn_s)
        return {name: rate_of([piece.num_transitions * value for value in rounds]) for name, rounds in measured.items()}


def goals(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Compare the figures with their goals; `met` is None where this run can't decide."""
    is_whole = set(GAMES) <= set(found["config"]["games"])
    mean_bytes = found["bytes_per_transition"]["mean"]
    pong = found["batches_per_s"]["zstd"]["uniform"]["off"]["median"]
    worst = found["batches_per_s_worst_game"]["zstd"]["uniform"]["off"]["median"]
    is_small, is_fast = mean_bytes <= GOAL_BYTES, worst >= GOAL_WORST_BATCHES
    judged = {
        "mean_bytes_per_transition": (mean_bytes, GOAL_BYTES, is_small if is_whole else None),
        "zstd_batches_per_s": (pong, GOAL_PONG_BATCHES, pong >= GOAL_PONG_BATCHES),
        "zstd_worst_game_batches_per_s": (worst, GOAL_WORST_BATCHES, is_fast if is_whole else None),
    }
    return {name: {"value": value, "goal": wanted, "met": met} for name, (value, wanted, met) in judged.items()}


@dataclass(frozen=True)
class PlayedGame:
    """T random steps of L lanes of a game, held in memory so that every contender gets the same."""

    game: str
    spec: EnvSpec
    first_frames: Array  # [L, *frame] before the first step
    actions: IntArray  # [T, L]
    steps: Sequence[VectorStep]

    @property
    def lanes(self) -> int:
        """Lanes."""
        return len(self.first_frames)

    @property
    def num_transitions(self) -> int:
        """Steps of all lanes."""
        return len(self.steps) * self.lanes

    def put_into(self, memory: ReplayMemory) -> None:
        """Append all steps as a new stretch of play."""
        lanes = memory.lanes
        memory.cut(lanes)
        memory.begin(lanes, self.first_frames)
        for actions, step in zip(self.actions, self.steps, strict=False):
            memory.append(
                lanes,
                actions=actions,
                reward=step.reward,
                return_ends=step.return_ends,
                episode_ends=step.ended,
                frames=step.frames,
                first_frames=step.first_frames,
            )


def play_game(game: str, *, num_transitions: int, seed: int, lanes: int = LANES) -> PlayedGame:
    """Play `num_transitions` of a game with random actions, rounded up to whole vector steps."""
    num_steps = -(-num_transitions // lanes)
    rng = np.random.default_rng(seed)
    with closing(make_vector_env(EnvConfig(id=game, stack=STACK), num_envs=lanes, seed=seed, threads=lanes)) as env:
        first_frames = env.reset().copy()
        actions = rng.integers(env.spec.num_actions, size=(num_steps, lanes))
        steps = []
        for chosen in actions:
            env.send(chosen)
            steps.append(_kept(env.recv()))
    return PlayedGame(game, env.spec, first_frames, actions, steps)


def _kept(step: VectorStep) -> VectorStep:
    """Return a copy, because an env may reuse its arrays; equal frames are copied once."""
    arrays = {name: value.copy() for name, value in vars(step).items() if name != "first_frames"}
    first_frames = step.first_frames.copy() if step.ended.any() else arrays["frames"]
    return VectorStep(**arrays, first_frames=first_frames)


def filled_memory(played: PlayedGame, *, codec: str, path: Path | None = None) -> ReplayMemory:
    """Return a memory with the whole game."""
    layout = layout_for(played.spec, codec=codec, capacity=played.num_transitions, lanes=played.lanes)
    memory = ReplayMemory(replace(layout, path=path))
    played.put_into(memory)
    return memory


def staging_bytes(memory: ReplayMemory) -> int:
    """Return the bytes of the staging buffers, which do not depend on capacity."""
    layout = memory.layout
    return layout.num_stages * layout.frames_per_chunk * layout.frame_bytes


def bytes_per_transition(memory: ReplayMemory) -> float:
    """Return the stored bytes per transition, without the staging buffers."""
    return (memory.used_bytes - staging_bytes(memory)) / memory.num_transitions


class Sampling:
    """Draws batches and takes state and next state from them, as a learner does; called with a number of batches."""

    def __init__(self, memory: ReplayMemory, *, prioritized: bool, prefetch: int) -> None:
        self._rng = np.random.default_rng(SEED)
        self._priorities = self._rng.random((64, BATCH_SIZE))
        self._sampler: Sampler = PrioritizedSampler(memory, alpha=ALPHA) if prioritized else UniformSampler(memory)
        self._loader: BatchLoader[Batch] = BatchLoader(
            memory,
            make_buffers=lambda: BatchBuffers(memory.layout, batch_size=BATCH_SIZE),
            gamma=GAMMA,
            clip_rewards=True,
            prefetch=prefetch,
        )
        self.last: tuple[torch.Tensor, torch.Tensor] | None = None  # the newest state and next state

    def __call__(self, count: int) -> None:
        """Take exactly `count` batches."""
        drawn = 0
        for number in range(count):
            while drawn < count and self._loader.is_short_of(1):
                self._loader.submit(self._sampler.draw(self._rng, BATCH_SIZE, beta=BETA))
                drawn += 1
            ((draw, batch),) = self._loader.take(1)
            # one step: the next state begins one frame later in every row
            self.last = batch.frames[:, :STACK], batch.frames[:, 1:]
            self._sampler.update(draw.handles, self._priorities[number % len(self._priorities)])

    def close(self) -> None:
        """End the thread that gathers."""
        self._loader.close()
