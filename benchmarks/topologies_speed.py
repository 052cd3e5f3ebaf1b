"""The asynchronous topology against inline: steps/s of the same training, in pairs, and who waits for whom.

Each is a `redline train` of its own, by turns; start-up and warm-up are excluded. Each pair gives one ratio. The median
of the ratios is the verdict, but only if both had the same replay ratio. `pong` is plain DQN; `sleepy` is CartPole
whose step sleeps 5 ms, which is what separate processes are made for.
"""

import shlex
import statistics
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from recording import Measurement, at_least, finish, make_parser, refuse_busy_machine, say, spread
from redline.bench.training_speed import UPDATES_TOLERANCE
from redline.jsonl import Row
from redline_process import median_waiting, take_turns, train_for_window, who_waits

TOPOLOGIES = ("async", "inline")


@dataclass(frozen=True)
class Case:
    """What is trained in both topologies."""

    title: str
    flags: tuple[str, ...]  # of both
    async_flags: tuple[str, ...]
    inline_flags: tuple[str, ...]
    required_ratio: float

    def flags_of(self, topology: str, extra: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the flags of one side; what is typed last counts."""
        own = self.async_flags if topology == "async" else self.inline_flags
        return ["--topology", topology, *self.flags, *own, *extra["both"], *extra[topology]]


CASES: Mapping[str, Case] = {
    "pong": Case(
        title="DQN on Pong, Nature CNN, batches of 32",
        flags=("--env", "pong", "--algo", "dqn", "--warmup-steps", "2000", "--replay.capacity", "20000"),
        async_flags=("--evaluator.every-minutes", "0"),
        inline_flags=(),
        required_ratio=0.95,
    ),
    "sleepy": Case(
        title="DQN on CartPole whose step sleeps 5 ms, 4 actors × 1 env against 4 envs",
        flags=("--env", "redline/SleepyCartPole-v0", "--algo", "dqn"),
        async_flags=("--actors", "4", "--actor.envs", "1", "--evaluator.every-minutes", "0"),
        inline_flags=("--num-envs", "4"),
        required_ratio=3.0,
    ),
}


def run_pairs(case: Case, pairs: int, *, seconds: float, extra: Mapping[str, Sequence[str]]) -> list[Row]:
    """Measure both topologies by turns."""

    def window(topology: str, seed: int) -> Row:
        row = train_for_window([*case.flags_of(topology, extra), "--seed", str(seed)], seconds=seconds)
        say(f"{topology}: {who_waits(row['waiting'])}")
        return row

    rows = take_turns({topology: partial(window, topology) for topology in TOPOLOGIES}, rounds=pairs)
    return [row | {"ratio": row["async"]["steps_per_s"] / row["inline"]["steps_per_s"]} for row in rows]


def learnt_as_much(pair: Row) -> bool:
    """Tell whether both sides of a pair learnt as much per step."""
    ratio = pair["async"]["samples_per_step"] / pair["inline"]["samples_per_step"]
    return bool(abs(ratio - 1) <= UPDATES_TOLERANCE)


def measurement(
    name: str, repeats: Sequence[Row], *, seconds: float, extra: Mapping[str, Sequence[str]]
) -> Measurement:
    """Return what the pairs show."""
    case, typed = CASES[name], {side: shlex.join(flags) for side, flags in extra.items() if flags}
    ratio = spread([row["ratio"] for row in repeats])
    speed = {side: spread([row[side]["steps_per_s"] for row in repeats]) for side in TOPOLOGIES}
    samples = {side: spread([row[side]["samples_per_step"] for row in repeats]) for side in TOPOLOGIES}
    waiting = {side: median_waiting([row[side]["waiting"] for row in repeats]) for side in TOPOLOGIES}
    age_updates = statistics.median(row["async"]["weights_age_updates"] for row in repeats)
    is_fair = all(map(learnt_as_much, repeats))
    told = "".join(f"; {side} with {flags}" for side, flags in typed.items())
    return Measurement(
        name=f"topologies-speed-{name}" + ("-changed" if typed else ""),
        title=f"{case.title}: async ÷ inline{told}",
        headline=f"{ratio['median']:.2f} × ({ratio['min']:.2f}–{ratio['max']:.2f}), {case.required_ratio:g} required; "
        f"{speed['async']['median']:.0f} against {speed['inline']['median']:.0f} steps/s",
        learning=f"samples per step {samples['async']['median']:.2f} and {samples['inline']['median']:.2f}"
        + ("" if is_fair else ", NOT the same")
        + f"; {who_waits(waiting['async'])}; actors' weights {age_updates:.1f} updates old",
        passed=is_fair and ratio["median"] >= case.required_ratio,
        config={
            **{side: shlex.join(case.flags_of(side, extra)) for side in TOPOLOGIES},
            "window_seconds": seconds,
            "seed": "the number of the repeat",
        },
        repeats=repeats,
        summary={
            "ratio": ratio,
            "required_ratio": case.required_ratio,
            "steps_per_s": speed,
            "samples_per_step": samples,
            "same_samples_per_step": is_fair,
            "waiting": waiting,
            "weights_age_updates": age_updates,
        },
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, compare, record."""
    options = parse(argv)
    refuse_busy_machine("topologies_speed", allow_busy=options.allow_busy)
    extra = {"both": options.flags, "async": options.async_flags, "inline": options.inline_flags}
    pairs = run_pairs(CASES[options.case], options.repeats, seconds=options.seconds, extra=extra)
    result = measurement(options.case, pairs, seconds=options.seconds, extra=extra)
    return finish(result, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--case", choices=tuple(CASES), default="pong", help="what is trained")
    parser.add_argument("--repeats", type=at_least(1), default=5, help="pairs")
    parser.add_argument("--seconds", type=float, default=25.0, help="length of each window")
    for side, whose in (("", "both"), ("async-", "the asynchronous side"), ("inline-", "the inline side")):
        parser.add_argument(f"--{side}flags", type=shlex.split, default="", help=f"more flags of {whose}, in quotes")
    parser.add_argument("--allow-busy", action="store_true", help="measure although others use the machine")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
