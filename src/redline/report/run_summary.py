"""One run in a line of numbers, to be put beside others."""

from __future__ import annotations

from dataclasses import dataclass

from redline.report.run_files import RunFiles


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
    cpu_share_of_machine: float | None  # 0 … 1
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
    raise NotImplementedError
