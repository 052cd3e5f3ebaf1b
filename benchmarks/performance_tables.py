"""The tables of docs/performance.md: the limit, whole trainings beside peers, the ladder, and what was tried."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from hardware_tables import Records
from recipe_tables import TRAINERS
from run_reading import NOT_YET, as_text, markdown_table

Spread = Mapping[str, float]
TRAININGS = ("dqn", "ppo", "a2c")


def make_limit_table(records: Records) -> str:
    """Return the limit of the machine and the share of it that is reached."""
    rows = []
    for name in TRAININGS:
        record = records.get(f"{name}-speed-pong")
        if record is None or "limit" not in record["summary"]:
            continue
        summary, limit = record["summary"], record["summary"]["limit"]
        rows.append(
            (
                f"{name.upper()}, steps/s",
                f"{limit['steps_per_s']:.0f}",
                spread(summary["steps_per_s"], digits=0),
                percent(summary["limit_fraction"]),
            )
        )
    for name in sorted(name for name in records if name.startswith("learner-speed")):
        summary, config = records[name]["summary"], records[name]["config"]
        rows.append(
            (
                f"one update of {config['algo'].upper()} with {config['batch_size']} transitions, updates/s",
                f"{summary['limit']['updates_per_s']:.1f}",
                spread(summary["updates_per_s"], digits=1),
                percent(summary["limit_fraction"]),
            )
        )
    return markdown_table(("measured", "limit", "reached", "share of the limit"), rows)


def make_peers_table(records: Records) -> str:
    """Return whole trainings beside other libraries, and the env layer beside the bare emulators."""
    in_bf16 = [records.get(f"{name}-bf16-against-sb3") for name in TRAININGS]
    found = [*(beside_sb3(records, name) for name in TRAININGS), *in_bf16, records.get("env-speed")]
    rows = []
    for record in filter(None, found):
        for peer, ratio in record["summary"]["ratio"].items():
            if isinstance(ratio, Mapping):
                rows.append((record["title"], peer, f"{spread(ratio, digits=2)} ×", record["learning"]))
    return markdown_table(("training", "peer", "Redline ÷ peer", "learning meanwhile"), rows)


def beside_sb3(records: Records, name: str) -> Mapping[str, Any] | None:
    """Return the newest record of a training beside Stable-Baselines3; older ones stand with the limit."""
    found = [records[key] for key in (f"{name}-against-sb3", f"{name}-speed-pong") if key in records]
    return next((record for record in found if "ratio" in record["summary"]), None)


def make_numbers_table(records: Records) -> str:
    """Return five numbers beside peers, for the README."""
    rows = []
    if side := records.get("side-by-side-pong"):
        ours = [row for row in side["repeats"] if row["algorithm"] not in TRAINERS]
        minutes = [row["minutes"] for row in ours if row.get("solved")]
        theirs = "; ".join(f"{TRAINERS[name]} {as_text(last)}" for name, last in side["summary"]["peers"].items())
        rows.append(
            (
                "Pong, until solved",
                f"{median(minutes):.1f} min ({min(minutes):.1f}–{max(minutes):.1f}; {len(minutes)} of {len(ours)})",
                f"mean return after {side['config']['minutes']:g} min: {theirs} (solved: 18)",
            )
        )
    for name in ("dqn", "ppo"):
        if record := beside_sb3(records, name):
            summary = record["summary"]
            rows.append(
                (
                    f"{name.upper()} on Pong, the same updates per step",
                    f"{summary['ratio']['sb3']['median']:.2f} × ({summary['steps_per_s']['median']:.0f} steps/s)",
                    f"Stable-Baselines3: 1 ({summary['peers']['sb3']['median']:.0f} steps/s)",
                )
            )
    if replay := records.get("replay-bench"):
        row = replay["repeats"][-1]
        uniform = {codec: row["batches_per_s"][codec]["uniform"]["off"]["median"] for codec in ("raw", "zstd")}
        peers = row["peers"]
        fastest = max(peers, key=lambda name: peers[name]["batches_per_s"]["median"])
        smallest = min(peers, key=lambda name: peers[name]["bytes_per_transition"])
        rows.append(
            (
                "replay memory, bytes per transition of Pong",
                f"{row['bytes_per_transition']['pong']:.0f} (zstd)",
                f"{smallest}, the smallest of {len(peers)}: {peers[smallest]['bytes_per_transition']:,.0f};"
                f" Stable-Baselines3: {peers['stable_baselines3_optimized']['bytes_per_transition']:,.0f}",
            )
        )
        rows.append(
            (
                "replay memory, batches of 32 per second",
                f"{uniform['raw']:,.0f} raw, {uniform['zstd']:,.0f} zstd",
                f"{fastest}, the fastest: {peers[fastest]['batches_per_s']['median']:,.0f};"
                f" Stable-Baselines3: {peers['stable_baselines3_optimized']['batches_per_s']['median']:,.0f}",
            )
        )
    return markdown_table(("", "Redline", "others"), rows)


def make_ladder_table(records: Records) -> str:
    """Return the rungs in the order in which they are climbed."""
    record = records.get("ladder")
    if record is None:
        return NOT_YET
    rows = [
        (
            rung["name"],
            rung["switches_on"],
            *(("–",) * 3 if rung["steps_per_s"] is None else _speeds(rung)),
            "–" if rung["gain"] is None else f"{spread(rung['gain'], digits=2)} × {rung['over']}",
            "–" if rung["cpu_share"] is None else f"{rung['cpu_share']['median']:.0%}",
            rung["missing"] or _learnt(rung["learning"]),
        )
        for rung in record["repeats"]
    ]
    head = ("rung", "switched on", "steps/s", "updates/s", "samples per step", "gain", "CPU", "return after learning")
    return f"{markdown_table(head, rows)}\n\n{_sentence(record['headline'])}"


def make_trials_table(records: Records, *, kept: bool) -> str:
    """Return the changes to the learner that were tried: those that were kept, or those that were not."""
    record = records.get("learner-trials")
    if record is None:
        return NOT_YET
    rows = [
        (row["title"], f"{row['gain']['median']:.2f} × ({row['gain']['min']:.2f}–{row['gain']['max']:.2f})")
        for row in sorted(record["repeats"], key=lambda row: -row["gain"]["median"])
        if row["kept"] == kept
    ]
    return markdown_table(("tried", "time without ÷ with"), rows)


def make_unharmed_table(records: Records) -> str:
    """Return the returns on a pixel game before and after the learner was made faster, and the change."""
    record = records.get("learning-before-after")
    if record is None:
        return NOT_YET
    points = record["config"]["points"]
    rows = []
    for row in record["repeats"]:
        returns = {side: [_number(value) for value in row[side]["mean_returns"]] for side in ("before", "after")}
        seeds = str(len(row["before"]["by_seed"]))
        rows.append((row["algorithm"], seeds, "before", *returns["before"], ""))
        rows.append(("", "", "after", *returns["after"], _change(row["change_at_the_end"])))
    shares = (f"{point:.0%} of the steps" for point in points)
    return markdown_table(("algorithm", "seeds", "", *shares, "after − before at the end (90 % interval)"), rows)


def spread(value: Spread, *, digits: int) -> str:
    """Return a median and the range of 90 % of the rounds."""
    return f"{value['median']:,.{digits}f} ({value['low']:,.{digits}f}–{value['high']:,.{digits}f})"


def percent(value: Spread) -> str:
    """Return a share in per cent and the range of 90 % of the rounds."""
    return f"{value['median']:.0%} ({value['low']:.0%}–{value['high']:.0%})"


def _speeds(rung: Mapping[str, Any]) -> tuple[str, str, str]:
    return (
        spread(rung["steps_per_s"], digits=0),
        spread(rung["updates_per_s"], digits=1),
        f"{rung['samples_per_step']['median']:.2f}",
    )


def _learnt(learning: Mapping[str, Any]) -> str:
    if learning["mean_return"] is None:
        return str(learning["reason"])
    return _change({"mean": learning["mean_return"], "low": learning.get("low"), "high": learning.get("high")})


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def _change(change: Mapping[str, float | None]) -> str:
    if change["low"] is None:
        return _number(change["mean"])
    return f"{_number(change['mean'])} ({_number(change['low'])} … {_number(change['high'])})"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
