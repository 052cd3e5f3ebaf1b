"""What does prefetch change beside asynchronous actors? Updates/s and actor steps/s on Pong with 0, 1, 2 and 3.

With --pacing free neither side waits for the other, so whatever prefetch takes from the actors would show. Each
round measures every setting once, each in a process of its own, and begins with another one. A ratio is that of a
setting to prefetch 0 of the same round; intervals are Student's t over the rounds, 90 %, of the mean ratio.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence

import psutil

from arguments import at_least, make_parser
from machine_use import refuse_busy_machine
from recording import Measurement, finish, say, spread
from redline.records import Row
from redline.report.statistics import LEVEL, mean_interval
from topologies_speed import CASES
from training_window import median_waiting, train_for_window, who_waits

PREFETCHES = (0, 1, 2, 3)
RATES = ("updates_per_s", "steps_per_s")
TOLERANCE = 0.02  # of the actors' steps/s: what windows of the same setting differ by anyway
PACINGS = ("free", "held")


def turn_order(number: int) -> tuple[int, ...]:
    """Return the order of a round: as many rounds as settings put each in every place once."""
    begin = number % len(PREFETCHES)
    return (*PREFETCHES[begin:], *PREFETCHES[:begin])


def flags_of(prefetch: int, *, pacing: str, seed: int) -> list[str]:
    """Return the flags of one training."""
    case = CASES["pong"].flags_of("async", {"both": (), "async": ()})
    return [*case, "--pacing", pacing, "--replay.prefetch", str(prefetch), "--seed", str(seed)]


def run_round(number: int, *, pacing: str, seconds: float) -> Row:
    """Measure every setting once."""
    busy_percent, found = psutil.cpu_percent(interval=1.0), {}
    for prefetch in turn_order(number):
        row = train_for_window(flags_of(prefetch, pacing=pacing, seed=number + 1), seconds=seconds)
        found[str(prefetch)] = row
        say(
            f"round {number + 1}, prefetch {prefetch}: {row['updates_per_s']:.1f} updates/s, "
            f"{row['steps_per_s']:.1f} steps/s; {who_waits(row['waiting'])}"
        )
    order = turn_order(number)
    return {"order": order, "seed": number + 1, "busy_percent_before": busy_percent, "by_prefetch": found}


def summarise(rounds: Sequence[Row], prefetch: int) -> Row:
    """Return the rates of one setting, and their ratios to prefetch 0 with intervals."""
    own = [item["by_prefetch"][str(prefetch)] for item in rounds]
    base = [item["by_prefetch"]["0"] for item in rounds]
    found: Row = {rate: spread([row[rate] for row in own]) for rate in RATES}
    for rate in RATES:
        ratios = [row[rate] / other[rate] for row, other in zip(own, base, strict=True)]
        found[f"{rate}_ratio"] = {"mean": sum(ratios) / len(ratios), "interval": mean_interval(ratios)}
    found["samples_per_step"] = spread([row["samples_per_step"] for row in own])
    found["waiting"] = median_waiting([row["waiting"] for row in own])
    return found


def slows_actors(summary: Row) -> bool | None:
    """Tell whether the actors are slower beyond noise; None if one round says nothing of the noise."""
    interval = summary["steps_per_s_ratio"]["interval"]
    return None if interval is None else bool(interval[1] < 1 - TOLERANCE)


def measurement(rounds: Sequence[Row], *, pacing: str, seconds: float) -> Measurement:
    """Return what the rounds show."""
    found = {str(prefetch): summarise(rounds, prefetch) for prefetch in PREFETCHES}
    verdicts = [slows_actors(found[str(prefetch)]) for prefetch in PREFETCHES[1:]]
    shown = {rate: "; ".join(_shown(name, result, rate) for name, result in found.items()) for rate in RATES}
    samples = [result["samples_per_step"]["median"] for result in found.values()]
    return Measurement(
        name="prefetch-effect" if pacing == "free" else f"prefetch-effect-{pacing}",
        title=f"prefetch 0 to 3 with an asynchronous actor, DQN on Pong, pacing {pacing}: batches/s",
        headline=shown["updates_per_s"],
        learning=f"the actor's steps/s: {shown['steps_per_s']}; samples per step {min(samples):.1f} … "
        f"{max(samples):.1f}; × is the mean ratio to prefetch 0, with its {LEVEL:.0%} interval",
        passed=None if None in verdicts else not any(verdicts),
        config={
            "flags": " ".join(flags_of(0, pacing=pacing, seed=1)),
            "prefetch": PREFETCHES,
            "pacing": pacing,
            "window_seconds": seconds,
            "seed": "the number of the round",
            "interval": f"Student's t over rounds, of the mean ratio to prefetch 0, {LEVEL:.0%}",
            "tolerance": TOLERANCE,
        },
        repeats=rounds,
        summary={"by_prefetch": found},
    )


def _shown(name: str, result: Row, rate: str) -> str:
    ratio, interval = result[f"{rate}_ratio"]["mean"], result[f"{rate}_ratio"]["interval"]
    text = f"{name}: {result[rate]['median']:.0f}"
    if name == "0":
        return text
    return f"{text} (× {ratio:.2f}" + ("" if interval is None else f", {interval[0]:.2f}–{interval[1]:.2f}") + ")"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all rounds, and record."""
    options = parse(argv)
    refuse_busy_machine("prefetch_effect", allow_busy=options.allow_busy)
    rounds = [run_round(number, pacing=options.pacing, seconds=options.seconds) for number in range(options.repeats)]
    result = measurement(rounds, pacing=options.pacing, seconds=options.seconds)
    return finish(result, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=at_least(1), default=4, help="rounds, each with every prefetch")
    parser.add_argument("--seconds", type=float, default=25.0, help="length of each window")
    parser.add_argument("--pacing", choices=PACINGS, default="free", help="how actor and learner wait for each other")
    parser.add_argument("--allow-busy", action="store_true", help="measure although others use the machine")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
