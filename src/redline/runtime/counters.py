"""The progress of a run: counters that only grow, returns of episodes, and what follows from the counters alone.

That is which updates are due, and random numbers: a function of (seed, purpose, index), where the index is a counter.
Neither due updates nor random numbers are saved.
"""

from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Annotated, Any

import msgspec
import numpy as np

from redline.errors import DamagedError
from redline.jsonl import tamed

WINDOW_EPISODES = 100
LARGEST_COUNT = 2**53
SHORT_WINDOW_EPISODES = 10  # to compare the first episodes with the newest
CURVE_EPISODES = 1_000  # whose times are kept
TAKES_PER_UPDATE = 16  # most vector steps between two updates in unpaced mode


@dataclass
class Counters:
    """Totals over all resumes; a checkpoint keeps them."""

    steps: int = 0  # decisions of the agent, over all lanes
    vector_steps: int = 0  # steps of all lanes together
    updates: int = 0  # gradient steps
    samples: int = 0  # transitions learnt from
    batches_drawn: int = 0
    episodes: int = 0
    free_steps: int = 0  # step count when unpaced mode last ran
    free_samples: int = 0  # sample count at that moment
    time_s: float = 0.0  # training time
    warmup_time_s: float = 0.0  # the part of it spent before the first update
    warmup_steps: int = 0  # steps before it
    evaluations: int = 0
    evaluated_steps: int = 0  # steps when the weights of the newest evaluation were taken
    evaluated_at_s: float = 0.0  # training time at that moment
    evaluation_s: float = 0.0  # spent on inline evaluations, without their confirming games
    elapsed_s: float = 0.0  # starting, training, evaluating and saving, over all resumes
    skipped_steps: int = 0  # by which schedules are ahead of the steps, because `anneal_at_return` came early
    solved_s: float = 0.0  # `elapsed_s` when evaluations reached and confirmed the target; 0 before

    @property
    def schedule_steps(self) -> int:
        """Steps that the schedules of learning rate and entropy weight see."""
        return self.steps + self.skipped_steps

    def count_time(self, seconds: float) -> None:
        """Add training time; before the first update it is warm-up time too."""
        self.time_s += seconds
        if self.updates == 0:
            self.warmup_time_s += seconds
            self.warmup_steps = self.steps

    @property
    def warmup_steps_per_s(self) -> float | None:
        """Speed before the first update, over all resumes."""
        return self.warmup_steps / self.warmup_time_s if self.warmup_time_s > 0 else None

    @property
    def learning_steps_per_s(self) -> float | None:
        """Speed since the first update, over all resumes."""
        seconds = self.time_s - self.warmup_time_s
        return (self.steps - self.warmup_steps) / seconds if self.updates and seconds > 0 else None


@dataclass(frozen=True)
class Pacing:
    """The replay ratio: samples per step, counted from the end of the warm-up."""

    samples_per_step: float
    warmup_steps: int
    is_free: bool = False  # unpaced: one update after the other, however many steps are played meanwhile

    def is_learning(self, steps: int) -> bool:
        """Tell whether the warm-up is over."""
        return steps > self.warmup_steps

    def updates_due(self, *, steps: int, samples: int, batch_size: int, since: tuple[int, int] = (0, 0)) -> int:
        """Return how many updates of `batch_size` the steps played so far have earned and not yet had.

        A pure function of the counters. It counts samples, not updates, so the batch size may change midway. `since`
        are the steps and samples when unpaced mode last ran: nothing is owed from before.
        """
        if self.is_free:
            return int(self.is_learning(steps))
        free_steps, free_samples = since
        earned = (steps - max(self.warmup_steps, free_steps)) * self.samples_per_step
        return max(0, int((earned - (samples - free_samples)) // batch_size))

    def achieved(self, *, steps: int, samples: int) -> float | None:
        """Return the replay ratio since the warm-up."""
        learning_steps = steps - self.warmup_steps
        return samples / learning_steps if learning_steps > 0 else None

    def horizon_vector_steps(self, *, batches_ahead: int, batch_size: int, num_envs: int) -> int:
        """Return the most vector steps that pass between drawing a batch and learning from it."""
        if batches_ahead == 0:
            return 0
        if self.is_free:
            return (batches_ahead + 1) * TAKES_PER_UPDATE
        return int(batches_ahead * batch_size / self.samples_per_step // num_envs) + 2


class Purpose(IntEnum):
    """What a stream of random numbers is for; the value is part of the stream, so never renumber."""

    ACT = 1  # index: vector steps before this one
    DRAW = 2  # index: batches drawn before this one
    LEARN = 3  # index: updates before this one
    EVALUATE = 4  # index: vector steps of an evaluation before this one


def stream(seed: int, purpose: Purpose, index: int) -> np.random.Generator:
    """Return the generator for one event of a run."""
    # Philox counts in its lowest word while drawing, so the words above it keep the streams apart
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, int(purpose), index]))


@dataclass
class Scores:
    """Returns of the newest episodes, unclipped."""

    recent_returns: list[float] = field(default_factory=list)  # of the last 100 episodes of training
    best_return: float | None = None
    greedy_return: float | None = None  # mean of the newest evaluation
    confirmed_return: float | None = None  # mean of the newest confirming games
    solved_target: float | None = None  # the target that they confirmed; None before
    first_returns: list[float] = field(default_factory=list)  # of the first ten episodes
    recent_lengths_steps: list[int] = field(default_factory=list)  # of the last 100 episodes
    curve: list[tuple[float, float]] = field(default_factory=list)  # (time_s, return); a checkpoint does not keep it

    def add(self, episode_return: float, *, time_s: float, length_steps: int | None = None) -> None:
        """Add an episode that ended after `time_s` of training."""
        self.recent_returns.append(episode_return)
        del self.recent_returns[:-WINDOW_EPISODES]
        if length_steps is not None:
            self.recent_lengths_steps.append(length_steps)
            del self.recent_lengths_steps[:-WINDOW_EPISODES]
        self.curve.append((time_s, episode_return))
        del self.curve[:-CURVE_EPISODES]
        if len(self.first_returns) < SHORT_WINDOW_EPISODES:
            self.first_returns.append(episode_return)
        self.best_return = episode_return if self.best_return is None else max(self.best_return, episode_return)

    @property
    def mean(self) -> float | None:
        """Mean of the last 100 episodes, or of as many as there are."""
        return _mean(self.recent_returns) if self.recent_returns else None

    @property
    def mean_length_steps(self) -> float | None:
        """Mean length of the same episodes."""
        return _mean(self.recent_lengths_steps) if self.recent_lengths_steps else None

    @property
    def first_mean(self) -> float | None:
        """Mean of the first ten episodes; None before they are over."""
        return _mean(self.first_returns) if len(self.first_returns) == SHORT_WINDOW_EPISODES else None

    @property
    def newest_mean(self) -> float | None:
        """Mean of the newest ten episodes; None before there are as many."""
        newest = self.recent_returns[-SHORT_WINDOW_EPISODES:]
        return _mean(newest) if len(newest) == SHORT_WINDOW_EPISODES else None

    @property
    def is_full(self) -> bool:
        """Whether the mean is over a whole hundred."""
        return len(self.recent_returns) == WINDOW_EPISODES

    def reached(self, target: float) -> bool:
        return self.is_full and self.mean is not None and self.mean >= target


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values)  # a return may be infinite, which `fmean` refuses


class SavedState(msgspec.Struct):
    """What a checkpoint keeps in state.json beside the fields of `Scores`."""

    counters: Counters
    env_seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    num_envs: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1


def counters_to_json(counters: Counters, scores: Scores) -> dict[str, Any]:
    saved = asdict(scores)
    del saved["curve"]
    return {"counters": asdict(counters), **saved}


def counters_from_json(data: dict[str, Any]) -> tuple[Counters, Scores]:
    """Return what `counters_to_json` was given; DamagedError names a field that holds something else."""
    try:
        counters, scores = msgspec.convert(tamed(data), SavedState).counters, msgspec.convert(tamed(data), Scores)
        if wrong := [name for name, value in asdict(counters).items() if not 0 <= value <= LARGEST_COUNT]:
            raise msgspec.ValidationError(f"{', '.join(wrong)}: no run comes to such a count")
        return counters, scores
    except msgspec.ValidationError as error:
        raise DamagedError(f"a checkpoint's state.json is damaged: {error}: remove that checkpoint") from error
