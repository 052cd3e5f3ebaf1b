"""Does a machine of 4 GB suffice? Trains with a replay memory of a million transitions within 2 GB.

The warm-up fills the memory, then training goes on. With --cgroup the process runs in a control group limited to 2 GB;
a group is made only if its parent is named, because the machine's owner decides where a process may be moved. Otherwise
the process's memory is sampled, including reserved pages that are not touched yet, and its peak must stay below 2 GB.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from process_memory import MemoryGroup, family_memory_use
from recording import Measurement, at_least, finish, make_parser, say
from redline.jsonl import Row, read_records
from redline_process import redline_command, tail
from run_reading import as_text

LIMIT_BYTES = 2 * 10**9
SAMPLE_S = 0.5
SAY_S = 30.0
MIN_FILL = 0.95  # of the capacity: old chunks leave whole


def train(flags: Sequence[str], log: Path, group: MemoryGroup | None) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """Train in a child process; return its summary and samples of its memory."""
    samples: list[dict[str, float]] = []
    begin_s = time.monotonic()
    next_s = 0.0
    with log.open("ab") as said, log.with_suffix(".json").open("wb") as printed:
        process = subprocess.Popen(
            redline_command("train", *flags, "--json"),
            stdout=printed,
            stderr=said,
            preexec_fn=group.join if group else None,  # noqa: PLW1509 - this script has no threads
        )
        try:
            while process.poll() is None:
                use, now_s = family_memory_use(process.pid), time.monotonic() - begin_s
                samples.append({"time_s": now_s, "pss_bytes": use.pss_bytes, "unmapped_bytes": use.unmapped_bytes})
                if now_s >= next_s:
                    say(f"{now_s:5.0f} s: {use.num_bytes / 1e9:.2f} GB")
                    next_s = now_s + SAY_S
                time.sleep(SAMPLE_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode != 0:
        raise SystemExit(f"laptop: redline train ended with {process.returncode}: {tail(log)}")
    summary: dict[str, Any] = json.loads(log.with_suffix(".json").read_text(encoding="utf-8"))
    return summary, samples


def main(argv: Sequence[str] | None = None) -> int:
    """Train, watch, record."""
    options = parse(argv)
    flags = ["--env", options.env, "--seed", str(options.seed), "--replay.capacity", str(options.capacity)]
    flags += ["--warmup-steps", str(options.capacity), "--max-steps", str(options.capacity + options.steps)]
    flags += ["--replay.prefetch", str(options.prefetch)]
    say(f"training {options.capacity + options.steps:,} steps, the first {options.capacity:,} of them at random")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        group = stack.enter_context(MemoryGroup(options.cgroup, LIMIT_BYTES)) if options.cgroup else None
        summary, samples = train([*flags, "--log-dir", str(folder)], folder / "log", group)
        group_peak = group.peak_bytes if group else None
        metrics = read_records(Path(summary["run"]) / "metrics.jsonl")
    result = measurement(options, summary, samples, metrics, group_peak)
    return finish(result, as_json=options.json, keep=not options.no_record)


def measurement(
    options: Namespace,
    summary: dict[str, Any],
    samples: list[dict[str, float]],
    metrics: list[Row],
    group_peak_bytes: int | None,
) -> Measurement:
    """Return the memory of the run, and what it did."""
    peak = max(sample["pss_bytes"] + sample["unmapped_bytes"] for sample in samples)
    fill = summary["replay_transitions"] / summary["replay_capacity_transitions"]
    steps_after = summary["steps"] - options.capacity
    has_trained = summary["updates"] > 0 and steps_after >= options.steps and fill >= MIN_FILL
    where = "in a control group of 2 GB" if group_peak_bytes is not None else "no control group"
    return Measurement(
        name="laptop" if options.capacity == 1_000_000 else "laptop-tried",
        title=f"{options.env} with a replay memory of {options.capacity:,} transitions within 2 GB",
        headline=f"peak {peak / 1e9:.2f} GB ({where}), {fill:.0%} filled, {summary['updates']:,} updates "
        f"in {steps_after:,} steps after the warm-up",
        learning=f"{as_text(summary['samples_per_step'])} samples per step, "
        f"{as_text(summary['learning_steps_per_s'])} steps/s while learning, "
        f"mean-100 {as_text(summary['mean_return_100'])}",
        passed=has_trained and (group_peak_bytes is not None or peak < LIMIT_BYTES),
        config={
            "env": options.env,
            "replay_capacity_transitions": options.capacity,
            "warmup_steps": options.capacity,
            "steps_after_warmup": options.steps,
            "prefetch": options.prefetch,
            "seed": options.seed,
            "limit_bytes": LIMIT_BYTES,
            "control_group": group_peak_bytes is not None,
        },
        repeats=samples[:: max(1, len(samples) // 100)],
        summary={
            "peak_bytes": peak,
            "control_group_peak_bytes": group_peak_bytes,
            "replay_transitions": summary["replay_transitions"],
            "replay_bytes": summary["replay_bytes"],
            "fill": fill,
            "steps": summary["steps"],
            "updates": summary["updates"],
            "rss_bytes_max": max((row["rss_bytes"] for row in metrics), default=None),
            "time_s": summary["time_s"],
        },
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--env", default="pong", help="env")
    parser.add_argument("--capacity", type=at_least(1_000), default=1_000_000, help="transitions, and warm-up steps")
    parser.add_argument("--steps", type=at_least(8), default=5_000, help="steps after the warm-up")
    parser.add_argument("--prefetch", type=int, default=4, help="updates drawn ahead")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run")
    parser.add_argument("--cgroup", type=Path, default=None, help="folder of control groups in which one may be made")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
