"""What a run has done so far: counters that only grow, the updates that they make due, and returns of episodes."""

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from redline.errors import DamagedError
from redline.jsonl import tamed

WINDOW_EPISODES = 100
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


@dataclass
class Scores:
    """Returns of the newest episodes, unclipped."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_EPISODES))
    best: float | None = None
    greedy: float | None = None  # mean return of the newest evaluation; `recent` has none of its episodes
    confirmed: float | None = None  # mean of the newest confirming games
    solved_target: float | None = None  # the target that they confirmed; None before
    first: list[float] = field(default_factory=list)  # returns of the first episodes
    lengths_steps: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW_EPISODES))  # of the recent ones
    curve: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=CURVE_EPISODES))  # (time_s, return)

    def add(self, episode_return: float, *, time_s: float, length_steps: int | None = None) -> None:
        """Add an episode that ended after `time_s` of training."""
        self.recent.append(episode_return)
        if length_steps is not None:
            self.lengths_steps.append(length_steps)
        self.curve.append((time_s, episode_return))
        if len(self.first) < SHORT_WINDOW_EPISODES:
            self.first.append(episode_return)
        self.best = episode_return if self.best is None else max(self.best, episode_return)

    @property
    def mean(self) -> float | None:
        """Mean of the last 100 episodes, or of as many as there are."""
        return sum(self.recent) / len(self.recent) if self.recent else None

    @property
    def mean_length_steps(self) -> float | None:
        """Mean length of the same episodes."""
        return sum(self.lengths_steps) / len(self.lengths_steps) if self.lengths_steps else None

    @property
    def first_mean(self) -> float | None:
        """Mean of the first ten episodes; None before they are over."""
        return sum(self.first) / len(self.first) if len(self.first) == SHORT_WINDOW_EPISODES else None

    @property
    def newest_mean(self) -> float | None:
        """Mean of the newest ten episodes; None before there are as many."""
        newest = list(self.recent)[-SHORT_WINDOW_EPISODES:]
        return sum(newest) / len(newest) if len(newest) == SHORT_WINDOW_EPISODES else None

    @property
    def is_full(self) -> bool:
        """Whether the mean is over a whole hundred."""
        return len(self.recent) == WINDOW_EPISODES

    def reached(self, target: float) -> bool:
        """Whether the mean of a whole hundred is at least `target`."""
        return self.is_full and self.mean is not None and self.mean >= target


def counters_to_json(counters: Counters, scores: Scores) -> dict[str, Any]:
    """Return both as plain data."""
    return {
        "counters": asdict(counters),
        "recent_returns": list(scores.recent),
        "best_return": scores.best,
        "greedy_return": scores.greedy,
        "confirmed_return": scores.confirmed,
        "solved_target": scores.solved_target,
        "first_returns": scores.first,
        "recent_lengths_steps": list(scores.lengths_steps),
    }


class SavedState(msgspec.Struct):
    """What `counters_to_json` returns, as a checkpoint keeps it beside what the envs need."""

    counters: Counters
    recent_returns: list[float]
    best_return: float | None
    env_seed: int | None = None
    num_envs: int = 1
    greedy_return: float | None = None
    confirmed_return: float | None = None
    solved_target: float | None = None
    first_returns: list[float] = []
    recent_lengths_steps: list[int] = []


def counters_from_json(data: dict[str, Any]) -> tuple[Counters, Scores]:
    """Return what `counters_to_json` was given; DamagedError names a field that holds something else."""
    try:
        saved = msgspec.convert(tamed(data), SavedState)
    except msgspec.ValidationError as error:
        raise DamagedError(f"a checkpoint's state.json is damaged: {error}: remove that checkpoint") from error
    scores = Scores(
        recent=deque(saved.recent_returns, maxlen=WINDOW_EPISODES),
        best=saved.best_return,
        greedy=saved.greedy_return,
        confirmed=saved.confirmed_return,
        solved_target=saved.solved_target,
        first=saved.first_returns,
        lengths_steps=deque(saved.recent_lengths_steps, maxlen=WINDOW_EPISODES),
    )
    return saved.counters, scores
