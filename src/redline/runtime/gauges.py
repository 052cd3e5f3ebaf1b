"""Gauges: one reading of a run, the same for the panel, the files and the curves, and the display that shows it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, Self

import msgspec

from redline.jsonl import plain_text, tamed

# what an algorithm's `diagnose` may report; other names are dropped
DIAGNOSES = (
    *("gradient_norm", "td_error", "mean_q", "largest_q"),
    *("approximate_kl_nats", "clip_fraction", "explained_variance"),
)
REST = "rest"  # the wait of a process that has nothing to do


@dataclass(frozen=True)
class RoleGauges:
    """One reading of one process of a run; None where the process has no such value, or is not running."""

    role: str  # inline, supervisor, learner, evaluator, or actor and its number
    pid: int | None
    cpu_percent: float | None  # 100 is one core
    rss_bytes: int | None
    steps_per_s: float | None = None  # played by it
    updates_per_s: float | None = None  # computed by it
    waiting: Mapping[str, float] = field(default_factory=dict)  # share of the last seconds, 0 … 1, by reason
    weights_age_updates: float | None = None  # updates by which its weights lag behind the learner's
    restarts: int = 0
    busy: Mapping[str, float] = field(default_factory=dict)  # share of the last seconds, by phase; {} if unknown


@dataclass(frozen=True)
class Gauges:
    """One reading; rates are over the last seconds, episodes per hour over the last minutes."""

    time_s: float  # training time over all resumes
    unix_s: float
    steps: int
    frames: int
    updates: int
    samples: int
    episodes: int
    steps_per_s: float
    warmup_steps_per_s: float | None  # before the first update; None without a warm-up
    updates_per_s: float
    episodes_per_h: float
    samples_per_step: float | None  # achieved since the warm-up
    mean_return_100: float | None
    best_return: float | None
    greedy_return: float | None  # mean of the newest evaluation
    greedy_at_steps: int | None  # steps that the weights of that evaluation had learnt from
    epsilon: float | None  # None where actions are drawn from a policy
    policy_entropy_nats: float | None  # None where there is no policy, or nothing was played yet
    loss: float | None
    actor_weights_age_updates: float  # updates by which the actors' weights lag behind, on average
    replay_transitions: int | None  # None where there is no replay memory
    replay_capacity_transitions: int | None
    replay_bytes: int | None
    cpu_percent: float  # of all processes together; 100 is one core
    rss_bytes: int
    load_average: float | None  # of the machine over a minute; None if unknown
    memory_available_bytes: int | None  # of the machine
    disk_free_bytes: int | None  # where the run's directory is
    progress: float | None  # share of the nearest limit, 0 … 1
    remaining_s: float | None  # wall time until the nearest limit; None in the warm-up
    target_eval_return: float | None = None  # of evaluations; None: the run has no such target
    solved_in_s: float | None = None  # until the target at the present rise of the returns; None: unknown
    mean_length_100_steps: float | None = None  # of the episodes of `mean_return_100`
    learning_rate: float | None = None
    gradient_norm: float | None = None  # before clipping; this and the following: of one update in 257
    td_error: float | None = None  # mean size; for a predicted distribution, its loss
    mean_q: float | None = None  # value of the best action, over the states of an update
    largest_q: float | None = None
    approximate_kl_nats: float | None = None  # of the policy that acted from the one that learns
    clip_fraction: float | None = None  # share of the rows whose ratio is clipped
    explained_variance: float | None = None  # of the returns, by the values: 1 is perfect, 0 useless
    remaining_low_s: float | None = None  # of the 90 % interval of `remaining_s`
    remaining_high_s: float | None = None
    elapsed_s: float | None = None  # starting, training, evaluating and saving, over all resumes
    price_per_hour: float | None = None  # of the machine; this and the following are None if the run has no price
    cost: float | None = None  # of `elapsed_s`
    cost_remaining: float | None = None
    cost_remaining_low: float | None = None
    cost_remaining_high: float | None = None
    cost_per_million_steps: float | None = None  # of learning, at the present pace
    power_w: float | None = None  # drawn by processors and GPUs, by whoever uses them; None if nothing tells it
    energy_j: float | None = None  # the same, over all resumes
    roles: tuple[RoleGauges, ...] = ()

    def row(self) -> dict[str, Any]:
        """Return the reading as a row of metrics.jsonl."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the reading that a row was made from, by this process or another, in this version or an older one.

        Missing and implausible numbers become None; names become plain text. ValueError if the row is no reading.
        """
        try:
            known = tamed({**row, "roles": list(row.get("roles") or ())})
            known["roles"] = [_role_from_row(role) for role in known["roles"]]
            return msgspec.convert(dict.fromkeys(field.name for field in fields(cls)) | known, cls)
        except (AttributeError, TypeError, msgspec.ValidationError) as error:
            raise ValueError(f"no reading: {error}") from error


def _role_from_row(row: Mapping[str, Any]) -> RoleGauges:
    """Return the reading of a process, without fields that only newer versions know."""
    told = {name: value for name, value in row.items() if value is not None}
    for name in ("waiting", "busy"):
        if isinstance(shares := told.get(name), Mapping):
            told[name] = {plain_text(what): share for what, share in shares.items() if share is not None}
    role = msgspec.convert({"pid": None, "cpu_percent": None, "rss_bytes": None, **told}, RoleGauges)
    return replace(role, role=plain_text(role.role))


class Display(Protocol):
    """Shows a run; its methods must return at once."""

    def note(self, text: str) -> None:
        """Show one line: a protocol, a thread count, requested → effective, a warning."""

    def show(self, gauges: Gauges) -> None:
        """Show a reading."""


class NoDisplay:
    """A display that shows nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def show(self, gauges: Gauges) -> None:
        """Show nothing."""
