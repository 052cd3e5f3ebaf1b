"""One run in a line of numbers, to be put beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from redline.records import Row
from redline.report.clean_samples import recordings
from redline.report.episode_means import Integrals
from redline.report.row_values import as_number, number, numbers, part, setting, text
from redline.report.run_clock import covered_share, run_clock
from redline.report.run_files import ENOUGH_COVER, RunFiles
from redline.report.run_series import episodes_of, moving_means, steps_of
from redline.report.spending import spending

END_SHARE = 0.2  # of the episodes: what the first and the final return are over
LEAST_LEARNING_S = 2.0  # a shorter span between rows says nothing of the hardware while learning


@dataclass(frozen=True)
class RunSummary:
    """What a run was and what came of it; None where its files do not tell."""

    label: str
    algorithm: str | None
    env: str | None
    host: str | None  # processor and usable cores, to tell machines apart
    batch_size: int | None
    num_envs: int | None
    learner_threads: int | None
    usable_cores: int | None
    topology: str | None
    seed: int | None
    steps: int | None
    updates: int | None
    minutes: float | None  # of training; of the recording for foreign code
    steps_per_s: float | None  # while learning, after the warm-up
    updates_per_s: float | None
    samples_per_step: float | None
    cpu_cores_used: float | None  # mean while learning, where that is known; else over the recording
    cpu_share_of_machine: float | None  # 0 … 1, of the cores that it may use
    others_cpu_cores_used: float | None  # by anybody else on the machine
    gpu_utilisation_percent: float | None  # mean over time and GPUs, over the same span
    rss_peak_bytes: float | None
    pss_peak_bytes: float | None
    cpu_s: float | None  # of all recordings, whatever they were spent on
    gpu_s: float | None  # GPU seconds: utilisation summed over time and GPUs
    energy_j: float | None  # drawn by the GPUs
    cpu_s_per_1000_steps: float | None
    episodes: int  # finished while training
    first_return: float | None  # mean of the first 20 % of them
    final_return: float | None  # mean of the last 20 % of them
    final_return_episodes: int  # episodes that final_return is over
    best_return: float | None
    mean_return: float | None  # area under the curve against steps ÷ steps
    return_gained_per_cpu_minute: float | None  # final − first: a return can be negative, so a quotient says nothing
    monitor_cpu_share: float | None  # the monitor's own CPU time ÷ (wall × cores)


def summarise(run: RunFiles) -> RunSummary:
    """Return the numbers of a run."""
    returns = [float(row["return"]) for row in episodes_of(run, "actor")]
    at_ends = max(round(END_SHARE * len(returns)), 1)
    first, final = _mean(returns[:at_ends]), _mean(returns[-at_ends:])
    cores, spent, used = _cores(run), spending(run.hardware), _used(run)
    cpu_s, steps, cpu_cores_used = spent.total("cpu_s"), _last(run, "steps"), used.get("cpu_cores_used")
    whole_cpu_s = cpu_s if covered_share(run) > ENOUGH_COVER else None  # else it is not of all these steps
    gained = None if final is None or first is None else final - first
    speed = _speed(run)
    return RunSummary(
        label=run.label,
        algorithm=None if run.run is None else text(run.run, "algorithm"),
        env=_text_setting(run, "env.id"),
        host=_host(run),
        batch_size=_whole(setting(run.run, "batch_size")),
        num_envs=_whole(setting(run.run, "num_envs")),
        learner_threads=_whole(setting(run.run, "learner.threads")),
        usable_cores=cores,
        topology=_text_setting(run, "topology"),
        seed=_whole(setting(run.run, "seed")),
        steps=_whole(steps),
        updates=_whole(_last(run, "updates")),
        minutes=_minutes(run),
        steps_per_s=speed.get("steps"),
        updates_per_s=speed.get("updates"),
        samples_per_step=_last(run, "samples_per_step"),
        cpu_cores_used=cpu_cores_used,
        cpu_share_of_machine=_over(cpu_cores_used, cores),
        others_cpu_cores_used=used.get("others_cpu_cores_used"),
        gpu_utilisation_percent=used.get("gpu_utilisation_percent"),
        rss_peak_bytes=_peak(run, "rss_bytes"),
        pss_peak_bytes=_peak(run, "pss_bytes"),
        cpu_s=cpu_s,
        gpu_s=spent.total("gpu_s"),
        energy_j=spent.total("energy_j"),
        cpu_s_per_1000_steps=_over(whole_cpu_s, steps, 1_000.0),
        episodes=len(returns),
        first_return=first,
        final_return=final,
        final_return_episodes=at_ends if returns else 0,
        best_return=max(returns, default=None),
        mean_return=mean_return(episodes_of(run, "actor")),
        return_gained_per_cpu_minute=_over(gained, whole_cpu_s, 60.0),
        monitor_cpu_share=_monitor_share(run),
    )


def mean_return(episodes: Sequence[Row]) -> float | None:
    """Return the area under the learning curve against steps, by trapezia, ÷ steps from its first point to its last."""
    rows = [
        (steps, float(row["return"]))
        for steps, row in zip(steps_of(episodes), episodes, strict=True)
        if steps is not None
    ]
    points = list(zip((steps for steps, _ in rows), moving_means([value for _, value in rows]), strict=True))
    pairs = [
        (after[0] - before[0], (before[1] + after[1]) / 2.0)
        for before, after in pairwise(points)
        if after[0] > before[0]
    ]
    width = sum(steps for steps, _ in pairs)
    if width == 0:
        return _mean([value for _, value in rows])
    return sum(steps * height for steps, height in pairs) / width


def _speed(run: RunFiles) -> dict[str, float]:
    """Return steps and updates per second of training after the first row with an update, or of the wall clock."""
    names = ("steps", "updates")
    rates: dict[str, float | None] = {"steps": _rate(episodes_of(run, "actor"), "steps", "unix_s")}
    if run.metrics:
        rates = {name: _rate(_while_learning(run), name, "time_s") for name in names}
        if None in rates.values():  # too short for two rows: the rates of the last 10 s are all there is
            rates = {name: number(run.metrics[-1], f"{name}_per_s") for name in names}
    return {name: rate for name, rate in rates.items() if rate is not None}


def _while_learning(run: RunFiles) -> list[Row]:
    return [row for row in run.metrics if (number(row, "updates") or 0.0) > 0]


def _rate(rows: Sequence[Row], name: str, clock: str) -> float | None:
    """Return growth per second; where the counter goes back or time stands still, that part is left out."""
    points = [(at_s, value) for row in rows if (value := number(row, name)) is not None and (at_s := row[clock])]
    steps = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(points)]
    usable = [(passed_s, grown) for passed_s, grown in steps if passed_s > 0 and grown >= 0]
    seconds = sum(passed_s for passed_s, _ in usable)
    return sum(grown for _, grown in usable) / seconds if seconds > 0 else None


def _used(run: RunFiles) -> dict[str, float]:
    """Return what was used on average while learning: by hardware.jsonl, else what metrics.jsonl tells."""
    learning = _while_learning(run)
    if not run.hardware:
        percent = numbers(learning[1:] or run.metrics, "cpu_percent")
        return {"cpu_cores_used": fmean(percent) / 100.0} if percent else {}
    integrals = Integrals(run.hardware)
    begin_s, end_s = (learning[0]["unix_s"], learning[-1]["unix_s"]) if learning else (0.0, 0.0)
    [found] = integrals.means([(begin_s, end_s)]) if end_s - begin_s >= LEAST_LEARNING_S else [{}]
    if not found:
        first = run.hardware[0]
        [found] = integrals.means([(first["unix_s"] - first["interval_s"], run.hardware[-1]["unix_s"])])
    used = {name: found[name] for name in ("cpu_cores_used",) if name in found}
    if {"cpu_cores_used", "machine_cpu_cores_used"} <= found.keys():
        used["others_cpu_cores_used"] = max(found["machine_cpu_cores_used"] - found["cpu_cores_used"], 0.0)
    gpus = [
        value for name, value in found.items() if name.startswith("gpus.") and name.endswith(".utilisation_percent")
    ]
    return used | ({"gpu_utilisation_percent": fmean(gpus)} if gpus else {})


def _monitor_share(run: RunFiles) -> float | None:
    """Return the monitor's own CPU time while it sampled ÷ (wall × cores), over all recordings."""
    own_s = wall_s = 0.0
    for rows in recordings(run.hardware):
        told = [row for row in rows if number(row, "monitor_cpu_s") is not None and number(row, "elapsed_s")]
        if len(told) > 1:
            own_s += told[-1]["monitor_cpu_s"] - told[0]["monitor_cpu_s"]
            wall_s += told[-1]["elapsed_s"] - told[0]["elapsed_s"]
    cores = _monitored_cores(run)
    return max(own_s, 0.0) / (wall_s * cores) if cores and wall_s > 0 else None


def _monitored_cores(run: RunFiles) -> int | None:
    told = [number(row, "cores") for row in run.events if row["event"] == "monitor-start"]
    busy = run.hardware[-1].get("core_busy") if run.hardware else None
    return _whole(told[-1]) if told and told[-1] else len(busy) if isinstance(busy, list) and busy else None


def _cores(run: RunFiles) -> int | None:
    return _whole(number(part(run.run, "host"), "usable_cores")) or _monitored_cores(run)


def _host(run: RunFiles) -> str | None:
    host: Mapping[str, Any] = part(run.run, "host")
    model, cores = text(host, "cpu_model"), _whole(host.get("usable_cores"))
    return None if model is None else f"{model}, {cores} cores"


def _last(run: RunFiles, name: str) -> float | None:
    """Return the newest value that metrics.jsonl tells, or the episodes."""
    return next((value for rows in (run.metrics, run.episodes) for value in numbers(rows, name)[-1:]), None)


def _minutes(run: RunFiles) -> float | None:
    clock = run_clock(run)
    if run.metrics:
        return float(run.metrics[-1]["time_s"]) / 60.0
    return None if clock is None else clock.total_s / 60.0


def _peak(run: RunFiles, name: str) -> float | None:
    return max(numbers(run.hardware, name) or numbers(run.metrics, name), default=None)


def _text_setting(run: RunFiles, name: str) -> str | None:
    return text({"value": setting(run.run, name)}, "value")


def _whole(value: object) -> int | None:
    plain = as_number(value)
    return None if plain is None else int(plain)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _over(value: float | None, divisor: float | None, factor: float = 1.0) -> float | None:
    return None if value is None or not divisor or divisor < 0 else value / divisor * factor
