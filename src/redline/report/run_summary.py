"""The numbers that summarise one run, for comparison with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from redline.jsonl import Row
from redline.report.hardware_use import recordings
from redline.report.rows import as_number, members, moment, number, numbers, one_line, part, setting, text
from redline.report.run_files import CPU_USE, LEARNING, LEAST_COVER, RECORDING, RunFiles
from redline.report.run_series import evaluations_of, moving_means, steps_of

HEADLINE_EPISODES = 100  # of the headline score, `final_return`
FIRST_SHARE = 0.2  # of the episodes, for `first_return`; at most HEADLINE_EPISODES
LAST_10_S = "last 10 s"
SAME_STOP_S = 2.0  # most by which the starts of a monitor-stop and its samples differ


@dataclass(frozen=True)
class RunSummary:
    """The settings, results and costs of a run; None where its files do not say."""

    label: str
    algorithm: str | None
    env: str | None
    host: str | None  # processor and usable cores, to tell machines apart
    batch_size: int | None
    num_envs: int | None
    learner_threads: int | None
    learner_precision: str | None
    usable_cores: int | None
    topology: str | None
    seed: int | None
    steps: int | None
    updates: int | None
    minutes: float | None  # of training; of the recording for foreign code
    steps_per_s: float | None  # over `speed_over`
    updates_per_s: float | None
    samples_per_step: float | None
    cpu_cores_used: float | None  # mean over `use_over`; None where samples cover too little
    cpu_share_of_machine: float | None  # 0 … 1, of the cores that it may use
    others_cpu_cores_used: float | None  # by anybody else on the machine
    gpu_utilisation_percent: float | None  # mean over time and GPUs that were sampled enough
    rss_peak_bytes: float | None
    pss_peak_bytes: float | None
    cpu_s: float | None  # of all recordings
    gpu_s: float | None  # GPU seconds: utilisation summed over time and GPUs
    energy_j: float | None  # drawn by the GPUs
    cpu_s_per_1000_steps: float | None
    episodes: int  # finished while training
    first_return: float | None  # mean of the first 20 % of them, at most 100
    final_return: float | None  # the headline score: mean of the last 100, as on the panel
    final_return_episodes: int  # episodes in final_return: 100, or all if there are fewer
    best_return: float | None
    mean_return: float | None  # area under the curve against steps ÷ steps
    return_gained_per_cpu_minute: float | None  # final − first: returns can be negative, so a ratio would mislead
    monitor_cpu_share: float | None  # the monitor's own CPU time ÷ (wall × cores)
    power_s: float | None = None  # seconds that energy_j covers
    speed_over: str | None = None  # LEARNING (after the warm-up), RECORDING or LAST_10_S
    use_over: str | None = None  # LEARNING or RECORDING
    changed: Mapping[str, str] | None = None  # setting → "128 → 64", if a resume changed it
    evaluation_return: float | None = None  # mean of the newest evaluation
    evaluation_episodes: int = 0  # episodes of that evaluation
    evaluation_steps: int | None = None  # of training, of the evaluated weights

    @property
    def power_w(self) -> float | None:
        """Mean power of the GPUs while it was sampled."""
        return _over(self.energy_j, self.power_s)


def summarise(run: RunFiles) -> RunSummary:
    """Return the numbers of a run."""
    known = {**_settings(run), **_speed(run), **_use(run), **_costs(run), **_returns(run)}
    first, final = known["first_return"], known["final_return"]
    whole_cpu_s = known["cpu_s"] if run.is_covered else None  # else it does not cover all steps
    return RunSummary(
        label=run.label,
        cpu_share_of_machine=_over(known["cpu_cores_used"], known["usable_cores"]),
        cpu_s_per_1000_steps=_over(whole_cpu_s, known["steps"], 1_000.0),
        return_gained_per_cpu_minute=_over(None if first is None else final - first, whole_cpu_s, 60.0),
        **known,
    )


def _settings(run: RunFiles) -> dict[str, Any]:
    host = part(run.run, "host")
    model, cores = text(host, "cpu_model"), _whole(host.get("usable_cores"))
    is_counted = model is not None and cores is not None
    told = {"env": setting(run.run, "env.id"), "topology": setting(run.run, "topology")}
    return {
        "algorithm": text(run.run or {}, "algorithm"),
        **{name: text(told, name) for name in told},
        "host": f"{model}, {cores} core{'' if cores == 1 else 's'}" if is_counted else model,
        "learner_threads": _whole(setting(run.run, "learner.threads")),
        "learner_precision": text({"precision": setting(run.run, "learner.precision")}, "precision"),
        **{name: _whole(setting(run.run, name)) for name in ("batch_size", "num_envs", "seed")},
        "usable_cores": cores or monitored_cores(run),
        "changed": _changed(run) or None,
    }


def _changed(run: RunFiles) -> dict[str, str]:
    """Return all values of each setting that a resume changed."""
    found: dict[str, str] = {}
    for resume in members(run.run or {}, "resumes"):
        for name, value in part(resume, "changes").items():
            before, _, after = one_line(str(value)).partition(" → ")
            found[one_line(name)] = f"{found.get(one_line(name), before)} → {after}"
    return found


def _costs(run: RunFiles) -> dict[str, Any]:
    minutes = run.metrics[-1]["time_s"] / 60.0 if run.metrics else run.clock.total_s / 60.0 or None
    peaks = {name: numbers(run.hardware, name) or numbers(run.metrics, name) for name in ("rss_bytes", "pss_bytes")}
    return {
        "minutes": minutes,
        "rss_peak_bytes": max(peaks["rss_bytes"], default=None),
        "pss_peak_bytes": max(peaks["pss_bytes"], default=None),
        **{name: run.samples.total(name) for name in ("cpu_s", "gpu_s", "energy_j")},
        "power_s": run.samples.power_s(),
        "monitor_cpu_share": monitor_share(run),
    }


def monitored_cores(run: RunFiles) -> int | None:
    """Return the cores of the machine, as recorded by the monitor."""
    told = [number(row, "cores") for row in run.events if row["event"] == "monitor-start"]
    busy = sum(name.startswith("core_busy.") for name in run.samples.columns)
    return int(told[-1]) if told and told[-1] else busy or None


def monitor_share(run: RunFiles) -> float | None:
    """Return the monitor's own CPU time ÷ (wall × cores) over all recordings: as reported at their ends, or sampled."""
    parts: list[tuple[float, float]] = []  # share, and over how many seconds
    starts_s: list[float] = []
    for row in run.events:
        share, wall_s, unix_s = number(row, "monitor_cpu_share"), number(row, "elapsed_s") or 0.0, moment(row)
        if row["event"] == "monitor-stop" and share is not None and wall_s > 0 and unix_s is not None:
            parts.append((share, wall_s))
            starts_s.append(unix_s - wall_s)
    cores = monitored_cores(run)
    for places in recordings(run.hardware):
        rows = [row for place in places if "monitor_cpu_s" in (row := run.hardware[place]) and row.get("elapsed_s")]
        wall_s = rows[-1]["elapsed_s"] - rows[0]["elapsed_s"] if rows else 0.0
        begun_s = rows[0]["unix_s"] - rows[0]["elapsed_s"] if rows else 0.0
        if cores and wall_s > 0 and not any(abs(begun_s - start_s) < SAME_STOP_S for start_s in starts_s):
            parts.append(((rows[-1]["monitor_cpu_s"] - rows[0]["monitor_cpu_s"]) / (wall_s * cores), wall_s))
    total_s = sum(wall_s for _, wall_s in parts)
    return max(sum(share * wall_s for share, wall_s in parts), 0.0) / total_s if total_s > 0 else None


def _returns(run: RunFiles) -> dict[str, Any]:
    played = run.episodes_of("actor")
    returns = [float(row["return"]) for row in played]
    num_first = min(max(round(FIRST_SHARE * len(returns)), 1), HEADLINE_EPISODES)
    newest = next(reversed(evaluations_of(run)), None)
    return {
        "episodes": len(returns),
        "first_return": _mean(returns[:num_first]),
        "final_return": _mean(returns[-HEADLINE_EPISODES:]),
        "final_return_episodes": min(len(returns), HEADLINE_EPISODES),
        "best_return": max(returns, default=None),
        "mean_return": mean_return(played),
        "evaluation_return": None if newest is None else newest.mean_return,
        "evaluation_episodes": 0 if newest is None else newest.episodes,
        "evaluation_steps": None if newest is None else _whole(newest.last.get("steps")),
    }


def mean_return(episodes: Sequence[Row]) -> float | None:
    """Return the area under the learning curve against steps, by trapezia, ÷ steps from its first point to its last."""
    told = zip(steps_of(episodes), (float(row["return"]) for row in episodes), strict=True)
    rows = [(steps, value) for steps, value in told if steps is not None]
    points = zip((steps for steps, _ in rows), moving_means([value for _, value in rows]), strict=True)
    pairs = [(after[0] - before[0], (before[1] + after[1]) / 2.0) for before, after in pairwise(points)]
    width = sum(steps for steps, _ in pairs if steps > 0)
    if width == 0:
        return _mean([value for _, value in rows])
    return sum(steps * height for steps, height in pairs if steps > 0) / width


def _speed(run: RunFiles) -> dict[str, Any]:
    """Return steps and updates and their rates: per training time while learning, for foreign code per wall clock."""
    names = ("steps", "updates")
    over = RECORDING
    rates: dict[str, float | None] = {"steps": _rate(run.episodes_of("actor"), "steps", "unix_s"), "updates": None}
    if run.metrics:
        over, rates = LEARNING, {name: _rate(run.while_learning, name, "time_s") for name in names}
        if None in rates.values():  # too short for two rows: only the rates of the last 10 s are known
            over, rates = LAST_10_S, {name: number(run.metrics[-1], f"{name}_per_s") for name in names}
    return {
        **{name: _whole(_last(run, name)) for name in names},
        **{f"{name}_per_s": rate for name, rate in rates.items()},
        "samples_per_step": _last(run, "samples_per_step"),
        "speed_over": None if set(rates.values()) == {None} else over,
    }


def _rate(rows: Sequence[Row], name: str, clock: str) -> float | None:
    """Return growth per second, without parts where the counter goes back or time stands still."""
    points = [(at_s, value) for row in rows if (value := number(row, name)) is not None and (at_s := row[clock])]
    steps = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(points)]
    usable = [(passed_s, grown) for passed_s, grown in steps if passed_s > 0 and grown >= 0]
    return _over(sum(grown for _, grown in usable), sum(passed_s for passed_s, _ in usable))


def _use(run: RunFiles) -> dict[str, Any]:
    """Return mean use while learning, from hardware.jsonl or else from metrics.jsonl."""
    span = run.use_span()
    if not run.hardware or span is None:
        learning = run.while_learning[1:]
        cores = _over(_mean(numbers(learning or run.metrics, "cpu_percent")), 100.0)
        others = gpus = None
        over = LEARNING if learning else RECORDING
    else:
        [found] = run.samples.means([span[0]])
        covers = {name: cover for name, cover in run.covers().items() if cover >= LEAST_COVER and name in found}
        over = span[1]
        cores = found[CPU_USE] if CPU_USE in covers else None
        machine = found.get("machine_cpu_cores_used")
        others = None if cores is None or machine is None else max(machine - cores, 0.0)
        # weighted by sampled time; a GPU lost early is left out
        weights = {name: cover for name, cover in covers.items() if name != CPU_USE}
        gpus = _over(sum(found[name] * cover for name, cover in weights.items()), sum(weights.values()))
    return {
        "cpu_cores_used": cores,
        "others_cpu_cores_used": others,
        "gpu_utilisation_percent": gpus,
        "use_over": None if cores is None and gpus is None else over,
    }


def _last(run: RunFiles, name: str) -> float | None:
    """Return the newest value in metrics.jsonl, or in the episodes."""
    return next((value for rows in (run.metrics, run.episodes) for value in numbers(rows, name)[-1:]), None)


def _whole(value: object) -> int | None:
    plain = as_number(value)
    return None if plain is None else int(plain)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _over(value: float | None, divisor: float | None, factor: float = 1.0) -> float | None:
    return None if value is None or not divisor or divisor < 0 else value / divisor * factor
