"""What a run has done so far: counts that only grow, and the returns they brought."""

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

WINDOW_EPISODES = 100


@dataclass
class Counters:
    """Totals over all resumes; a checkpoint keeps them."""

    steps: int = 0  # decisions of the agent, over all lanes
    vector_steps: int = 0  # steps of all lanes together
    updates: int = 0  # gradient steps
    samples: int = 0  # transitions learnt from
    batches_drawn: int = 0
    episodes: int = 0
    free_steps: int = 0  # of the steps, those up to the last one at which nobody held the pace
    free_samples: int = 0  # the same of the samples
    time_s: float = 0.0  # training time
    warmup_time_s: float = 0.0  # the part of it spent before the first update
    warmup_steps: int = 0  # the part of the steps played before it
    evaluations: int = 0  # played without exploration
    evaluated_steps: int = 0  # steps at which the weights of the newest of them were taken

    def count_time(self, seconds: float) -> None:
        """Add training time, and note how much of it and of the steps came before the first update."""
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


@dataclass
class Scores:
    """Returns of the newest episodes, unclipped."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_EPISODES))
    best: float | None = None
    greedy: float | None = None  # mean return of the newest evaluation; its episodes are not among the recent

    def add(self, episode_return: float) -> None:
        """Take in a finished episode."""
        self.recent.append(episode_return)
        self.best = episode_return if self.best is None else max(self.best, episode_return)

    @property
    def mean(self) -> float | None:
        """Mean of the last 100 episodes, or of as many as there are."""
        return sum(self.recent) / len(self.recent) if self.recent else None

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
    }


def counters_from_json(data: dict[str, Any]) -> tuple[Counters, Scores]:
    """Return what `counters_to_json` was given."""
    recent = deque((float(value) for value in data["recent_returns"]), maxlen=WINDOW_EPISODES)
    scores = Scores(recent=recent, best=data["best_return"], greedy=data.get("greedy_return"))
    return Counters(**data["counters"]), scores
