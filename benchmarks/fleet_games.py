"""One command from nothing to a report: trains ten games for some minutes each, and reads what the fleet's files say.

A fleet that was trained already, in --dir, is only read.
"""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from recording import Measurement, at_least, finish, make_parser, say
from redline.jsonl import Row, read_records
from redline_process import run_redline

GAMES = 10
LEAST_REPORT_BYTES = 50_000  # without charts it would be smaller
MOST_CPU_SHARE, MOST_RSS_BYTES = 0.01, 100_000_000  # of the supervisor


def train(options: Namespace, folder: Path, log: Path) -> dict[str, Any]:
    """Train the fleet to its end, and return how its slots stand."""
    flags = ("--games", "ten", "--model", options.model, "--max-minutes", str(options.minutes), "--dir", str(folder))
    run_redline(["fleet", "start", *flags], log)
    return run_redline(["fleet", "status", str(folder)], log)


def supervisor_use(samples: Sequence[Row]) -> dict[str, float]:
    """Return what the supervisor took, by the samples of its longest life."""
    lives: list[list[Row]] = []
    for row in samples:
        if not lives or row["supervisor_cpu_s"] < lives[-1][-1]["supervisor_cpu_s"]:
            lives.append([])
        lives[-1].append(row)
    life = max(lives, key=lambda rows: rows[-1]["unix_s"] - rows[0]["unix_s"])
    spent_s = life[-1]["supervisor_cpu_s"] - life[0]["supervisor_cpu_s"]
    return {
        "minutes": (life[-1]["unix_s"] - life[0]["unix_s"]) / 60,
        "cpu_share": spent_s / max(life[-1]["unix_s"] - life[0]["unix_s"], 1.0),
        "rss_bytes": max(row["supervisor_rss_bytes"] for row in life),
    }


def measurement(status: Mapping[str, Any], folder: Path, options: Namespace) -> Measurement:
    """Return what the fleet's files show."""
    use = supervisor_use([row for row in read_records(folder / "health.jsonl") if row.get("row") == "sample"])
    report_bytes = (folder / "report.html").stat().st_size
    rows = [{name: slot[name] for name in slot if name != "run"} for slot in status["slots"]]
    done, scored = status["counts"]["done"], [row for row in rows if row["mean_return_100"] is not None]
    told = ", ".join(f"{row['game']} {row['mean_return_100']:.1f}" for row in scored)
    return Measurement(
        name="fleet-games",
        title=f"Ten games with one command, {options.model}, {options.minutes} minutes each",
        headline=f"{done} of {GAMES} trained and reported ({report_bytes / 1e3:.0f} kB); supervisor "
        f"{use['cpu_share']:.1%} of a core, {use['rss_bytes'] / 1e6:.0f} MB",
        learning=f"mean return of each run's last episodes: {told}; none had ended in the other {GAMES - len(scored)}",
        passed=done == GAMES
        and report_bytes >= LEAST_REPORT_BYTES
        and use["cpu_share"] < MOST_CPU_SHARE
        and use["rss_bytes"] < MOST_RSS_BYTES,
        config={"model": options.model, "minutes": options.minutes},
        repeats=rows,
        summary={"counts": status["counts"], "report_bytes": report_bytes, "supervisor": use},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Train ten games, and record what came of it."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", default="ppo", help="algorithm")
    parser.add_argument("--minutes", type=at_least(1), default=2, help="of training for each game")
    parser.add_argument("--dir", type=Path, help="folder of the fleet, which is kept")
    options = parser.parse_args(argv)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = options.dir or home / "ten"
        say(f"about {GAMES * options.minutes} minutes of training, side by side as far as the machine allows")
        found = measurement(train(options, folder, home / "said.txt"), folder, options)
    return finish(found, as_json=options.json, keep=not options.no_record)


if __name__ == "__main__":
    sys.exit(main())
