"""Tables about the hardware: what each field of hardware.jsonl means, what the monitor costs, what the study saw."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from redline.monitor.hardware import FIELDS
from redline.report.statistics import mean_interval
from run_reading import NOT_YET, markdown_table

STUDY_COLUMNS = (
    "runs",
    "cores used",
    "steps/s",
    "updates/s",
    "CPU s per 1,000 steps",
    "return at the end",
    "return gained per CPU minute",
)
MEASURES = (
    "cpu_cores_used",
    "steps_per_s",
    "updates_per_s",
    "cpu_s_per_1000_steps",
    "final_return",
    "return_gained_per_cpu_minute",
)
DIGITS = {"cpu_cores_used": 2, "steps_per_s": 0, "updates_per_s": 1, "cpu_s_per_1000_steps": 1}

Records = Mapping[str, Mapping[str, Any]]
Summary = Mapping[str, Any]


def make_fields_table() -> str:
    """Return the fields of hardware.jsonl in Markdown."""
    rows = [f"| `{name}` | {field.unit} | {field.meaning} |" for name, field in FIELDS.items()]
    return "\n".join(["| field | unit | meaning |", "|---|---|---|", *rows])


def describe_overhead(records: Records) -> str:
    """Return what the newest record says of the monitor's cost."""
    record = records.get("monitor-overhead")
    if record is None:
        return NOT_YET
    learning = record["learning"]
    return f"{record['title']}: {record['headline']}. {learning[0].upper()}{learning[1:]}."


def make_study_table(records: Records, study: str) -> str:
    """Return the groups of a study in Markdown: the mean of each measure, and its 90 % interval over the seeds."""
    record = records.get(f"utilisation-{study}")
    if record is None:
        return NOT_YET
    runs = [row["summary"] for row in record["repeats"] if "error" not in row]
    titles = ("algorithm",) if study != "sweep" else ("batch size", "learner threads")
    keys = ("algorithm",) if study != "sweep" else ("batch_size", "learner_threads")
    groups: dict[tuple[Any, ...], list[Summary]] = {}
    for run in runs:
        groups.setdefault(tuple(run[key] for key in keys), []).append(run)
    # a sweep by what was swept, algorithms by what they used
    order = (lambda name: name[::-1]) if study == "sweep" else (lambda name: _mean(groups[name], "cpu_cores_used"))
    rows = [
        (*map(str, name), str(len(groups[name])), *(_cell(groups[name], measure) for measure in MEASURES))
        for name in sorted(groups, key=order)
    ]
    return markdown_table((*titles, *STUDY_COLUMNS), rows, left=len(titles))


def _cell(runs: Sequence[Summary], measure: str) -> str:
    values = [run[measure] for run in runs if run[measure] is not None]
    if not values:
        return "–"
    digits, interval = DIGITS.get(measure, 2), mean_interval(values)
    told = "" if interval is None else f" ({_text(interval[0], digits)} … {_text(interval[1], digits)})"
    return f"{_text(fmean(values), digits)}{told}"


def _mean(runs: Sequence[Summary], measure: str) -> float:
    values = [run[measure] for run in runs if run[measure] is not None]
    return fmean(values) if values else 0.0


def _text(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "−")
