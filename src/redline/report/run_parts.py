"""The parts of a page that show one run: how it learnt, how fast it was, what happened, and what the hardware did."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from redline.report.amounts import DASH, amount, moment, share, size, span
from redline.report.charts import Chart
from redline.report.hardware_use import largest_processes
from redline.report.parts import Cell, Facts, Fold, Notice, Part, Section, Table, Text, Tiles, grid
from redline.report.run_charts import (
    diagnostic_charts,
    hardware_charts,
    learning_charts,
    phase_charts,
    speed_charts,
    spending_charts,
)
from redline.report.run_files import LEARNING, RECORDING, RunFiles
from redline.report.run_log import changes_of, event_table, phase_split, settings_of
from redline.report.run_summary import LAST_10_S, RunSummary
from redline.report.videos import video_section

MAX_EVENTS = 300
NO_CURVE = "Neither an episode nor a speed is on record, so there is no curve."
NO_HARDWARE = "No hardware sample is on record: processor, memory, disk and GPUs over time are unknown."
EPISODES = "redline report --episodes FILE.jsonl writes each episode with the means of the hardware meanwhile."
# spans that numbers of a summary are over, in words
SPANS = {LEARNING: "while learning", RECORDING: "over the whole recording", LAST_10_S: "over the last 10 s"}
PROCESS_HEAD = ("pid", "role", "name", "cores used, mean", "resident memory, peak", "GPU memory, peak")


@dataclass(frozen=True)
class ShownRun:
    """A run and what it is called in the page."""

    files: RunFiles
    summary: RunSummary
    key: str  # begins the identities of its parts
    page_folder: Path | None = None  # where the page will lie; None: here

    @property
    def title(self) -> str:
        """Say in a few words what the run is."""
        summary = self.summary
        if summary.algorithm and summary.env:
            return f"{summary.algorithm} on {summary.env}"
        return summary.algorithm or summary.env or self.files.label


def span_words(spans: Iterable[str | None]) -> str:
    """Say over what span numbers are; nothing where that is unknown."""
    known = {SPANS.get(name, name) for name in spans if name}
    return "over different spans" if len(known) > 1 else "".join(known)


def headline(summary: RunSummary) -> Cell:
    """Return the score that every page, table and panel leads with, and how many episodes it is over."""
    over = f"n = {summary.final_return_episodes:,}" if summary.final_return is not None else ""
    return Cell(amount(summary.final_return), note=over, is_strong=summary.final_return is not None)


def newest_evaluation(summary: RunSummary) -> Cell:
    """Return the score of the newest evaluation, and what it is over."""
    if summary.evaluation_return is None:
        return Cell(DASH)
    at = "" if summary.evaluation_steps is None else f", step {summary.evaluation_steps:,}"
    return Cell(amount(summary.evaluation_return), note=f"n = {summary.evaluation_episodes:,}{at}")


def run_parts(run: ShownRun, *, max_points: int, level: int) -> list[Part]:
    """Return everything about a run, headings at `level` and below: learning first, the hardware folded."""
    files, owner = run.files, run.files.label
    parts: list[Part] = []
    if files.problems:
        parts.append(Notice("What is missing", files.problems, css="missing"))
    if known := _tiles(run.summary):
        parts.append(Tiles(known))
    curves = learning_charts(files)
    drawn: Part = grid(curves, owner=owner, max_points=max_points) if curves else Text(NO_CURVE)
    parts.append(Section("Learning", [drawn], identity=f"{run.key}-learning", level=level))
    if diagnosed := diagnostic_charts(files):
        drawn = grid(diagnosed, owner=owner, max_points=max_points)
        parts.append(Section("Losses and values", [drawn], identity=f"{run.key}-diagnostics", level=level))
    if (seen := video_section(files.path, run.key, run.page_folder, level=level)) is not None:
        parts.append(seen)
    parts += [
        _speed_section(run, max_points, level=level),
        _settings_section(run, level=level),
        _event_section(run, level=level),
        _command_section(run, level=level),
        _hardware_fold(run, max_points, level=level),
    ]
    return parts


def _tiles(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Return the figures that one looks for first; those that are unknown are left out."""
    minutes_s = _seconds(summary.minutes)
    evaluation, speed = newest_evaluation(summary), span_words([summary.speed_over])
    use, over = share(summary.cpu_share_of_machine), span_words([summary.use_over])
    facts = [
        ("return", amount(summary.final_return), f"mean of the last {summary.final_return_episodes:,} episodes"),
        ("newest evaluation", evaluation.text, evaluation.note),
        ("best episode", amount(summary.best_return), f"of {summary.episodes:,} while training"),
        ("steps", amount(summary.steps), f"in {span(minutes_s)}" if minutes_s is not None else ""),
        ("steps per second", amount(summary.steps_per_s), speed),
        ("updates", amount(summary.updates), _beside("replay ratio {}", summary.samples_per_step)),
        ("updates per second", amount(summary.updates_per_s), speed),
        ("CPU cores used", amount(summary.cpu_cores_used), f"{use} of its cores, {over}" if use != DASH else over),
        ("CPU time", span(summary.cpu_s), _beside("{} s per 1,000 steps", summary.cpu_s_per_1000_steps)),
        ("GPU utilisation", amount(summary.gpu_utilisation_percent, "%"), _beside("{} GPU seconds", summary.gpu_s)),
        ("GPU energy", amount(None if summary.energy_j is None else summary.energy_j / 1e3, "kJ"), ""),
        ("peak memory", size(summary.rss_peak_bytes), "resident, of all processes"),
        ("peak PSS", size(summary.pss_peak_bytes), "shared pages counted once"),
    ]
    return [fact for fact in facts if not fact[1].startswith(DASH)]


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def _beside(words: str, value: float | None) -> str:
    return "" if value is None else words.format(amount(value))


def _command_section(run: ShownRun, *, level: int) -> Section:
    """Return where and with what it ran."""
    summary, recorded = run.summary, run.files.run or {}
    monitor = None if summary.monitor_cpu_share is None else f"{share(summary.monitor_cpu_share)} CPU"
    known: list[tuple[str, object]] = [
        ("directory", run.files.path),
        ("started", _start(run.files)),
        ("command", recorded.get("command")),
        ("machine", summary.host),
        ("topology", summary.topology),
        ("seed", summary.seed),
        ("envs", summary.num_envs),
        ("batch size", summary.batch_size),
        ("learner threads", summary.learner_threads),
        ("device", recorded.get("device")),
        ("protocol", recorded.get("protocol")),
        ("commit", _short_commit(recorded.get("commit"))),
        ("the monitor itself", monitor),
    ]
    facts = Facts([(name, _words(value)) for name, value in known if value not in (None, "", DASH)])
    return Section("Command and machine", [facts], identity=f"{run.key}-command", level=level)


def _start(files: RunFiles) -> str:
    created = (files.run or {}).get("created_unix_s")
    if not isinstance(created, int | float):
        created = files.events[0].get("unix_s") if files.events else None
    return moment(created) if isinstance(created, int | float) else DASH


def _short_commit(commit: object) -> str | None:
    """Return as much of a commit as one needs to find it, and whether the source was edited."""
    return re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", commit) if isinstance(commit, str) else None


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _speed_section(run: ShownRun, max_points: int, *, level: int) -> Section:
    split = phase_split(run.files)
    charts: list[Chart] = [*speed_charts(run.files), *phase_charts(split)]
    identity, title = f"{run.key}-speed", "Speed, and where the time went"
    if not charts:
        return Section(title, [Text("The files of this run do not tell.")], identity=identity, level=level)
    total_s = sum(split.phases_s.values())
    rows = [(name, span(seconds), share(seconds / total_s)) for name, seconds in split.phases_s.items() if total_s]
    rows += [(f"{name}, beside training", span(seconds), DASH) for name, seconds in split.beside_s.items()]
    times = [Table("Phases of the run", ("phase", "time", "share"), rows, numeric=(1, 2))] if rows else []
    drawn = grid(charts, owner=run.files.label, max_points=max_points, beside=times)
    return Section(title, [drawn], identity=identity, level=level)


def _hardware_fold(run: ShownRun, max_points: int, *, level: int) -> Fold:
    """Return charts of the hardware and the largest processes."""
    owner = run.files.label
    subjects = {"Return against what was spent": spending_charts(run.files)}
    subjects = {name: charts for name, charts in subjects.items() if charts} | dict(hardware_charts(run.files))
    parts: list[Part] = [
        Section(subject, [grid(charts, owner=owner, max_points=max_points)], level=level + 1)
        for subject, charts in subjects.items()
    ]
    parts += [found for found in (_process_section(run, level=level + 1),) if found is not None]
    if not run.files.hardware:
        parts.insert(0, Text(NO_HARDWARE))
    elif run.files.episodes:
        parts.append(Text(EPISODES))
    note = f"{len(run.files.hardware):,} samples" if run.files.hardware else "no samples"
    return Fold("Hardware", parts, css="chapter", identity=f"{run.key}-hardware", note=note, level=level)


def _process_section(run: ShownRun, *, level: int) -> Section | None:
    """Return a table of the largest processes; None where no sample tells of any."""
    found = largest_processes(run.files.path / "hardware.jsonl")
    if not found.largest:
        return None
    rows = [
        (
            str(use.pid),
            use.role or "not watched",
            use.name or DASH,
            amount(use.cores if use.watched_s else None),
            size(use.rss_peak_bytes or None),
            size(use.gpu_peak_bytes or None),
        )
        for use in found.largest
    ]
    known = [place for place in range(len(PROCESS_HEAD)) if any(row[place] != DASH for row in rows)]
    head, cells = [PROCESS_HEAD[place] for place in known], [[row[place] for place in known] for row in rows]
    numeric = [place for place, column in enumerate(known) if column not in (1, 2)]
    lead = "Means are over the time that a process was there."
    if len(rows) < found.count:
        lead = f"{len(rows)} of {found.count:,}: those with most CPU, memory or GPU memory. {lead}"
    if not found.is_whole:
        lead += f" The recording is long: only its last {found.samples:,} samples were read for this."
    return Section("Largest processes", [Table("Largest processes", head, cells, numeric)], lead=lead, level=level)


def _settings_section(run: ShownRun, *, level: int) -> Section:
    settings, changes = settings_of(run.files), changes_of(run.files)
    parts: list[Part] = []
    if changes:
        head = ("when", "setting", "requested", "effective", "why")
        parts.append(Table("Settings that were changed", head, changes, css="card wrap"))
    else:
        known = "Every setting is in force as it was requested." if settings else "No settings are on record."
        parts.append(Text(known))
    if settings:
        table = Table("All settings", ("setting", "in force"), settings, css="card columns")
        parts.append(Fold(f"All {len(settings)} settings", [table]))
    return Section("Settings: requested → effective", parts, identity=f"{run.key}-settings", level=level)


def _event_section(run: ShownRun, *, level: int) -> Section:
    events = event_table(run.files)
    identity = f"{run.key}-events"
    if not events:
        return Section("Events", [Text("None on record.")], identity=identity, level=level)
    rows = [
        (span(_seconds(line.minutes)), amount(line.steps), line.event, line.details or DASH)
        for line in events[-MAX_EVENTS:]
    ]
    table = Table("Events", ("after", "steps", "event", "details"), rows, numeric=(0, 1), css="card long wrap")
    words = (
        f"The last {MAX_EVENTS} of {len(events):,} events" if len(events) > MAX_EVENTS else f"{len(events):,} events"
    )
    return Section("Events", [Fold(words, [table])], identity=identity, level=level)
