"""The part of a page that shows one run: what it was, how it learnt, what the hardware did, what happened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from redline.report.amounts import DASH, amount, moment, share, size, span
from redline.report.episode_section import episode_section
from redline.report.hardware_charts import hardware_charts
from redline.report.html_parts import Content, Gallery, Html, folded, join, notice, section, table, tiles
from redline.report.phase_split import PhaseSplit, phase_split
from redline.report.process_section import process_section
from redline.report.recording_section import recording_section
from redline.report.run_charts import diagnostic_charts, learning_charts, phase_charts, speed_charts
from redline.report.run_files import RunFiles
from redline.report.run_summary import RunSummary
from redline.report.run_tables import event_table, settings_table
from redline.report.shown_run import ShownRun, span_words

MAX_EVENTS = 300
NO_CURVE = "Neither an episode nor a speed is on record, so there is no curve."
NO_HARDWARE = (
    "No sample of the hardware is on record, so nothing is known of processor, memory, disk and GPUs over time."
)


def run_sections(run: ShownRun, gallery: Gallery, *, level: int) -> Html:
    """Return everything about a run, headings at `level` and below."""
    files = run.files
    problems = list(files.problems)
    parts: list[Content] = []
    if problems:
        parts.append(notice("What is missing", problems, css="missing"))
    if known := _facts(run.summary):
        parts.append(tiles(known))
    parts.append(_circumstances(run))
    curves = [*learning_charts(files), *speed_charts(files)]
    drawn = gallery.grid(curves, owner=run.files.label) if curves else Html(f"<p>{NO_CURVE}</p>")
    parts.append(section("Learning and speed", drawn, identity=f"{run.key}-learning", level=level))
    if diagnosed := diagnostic_charts(files):
        drawn = gallery.grid(diagnosed, owner=run.files.label)
        parts.append(section("How learning goes", drawn, identity=f"{run.key}-diagnostics", level=level))
    if (seen := recording_section(run, level=level)) is not None:
        parts.append(seen)
    parts.append(_time_section(phase_split(files), run, gallery, level=level))
    parts.append(_hardware_section(run, gallery, level=level))
    parts.append(_settings_section(run, level=level))
    parts.append(_event_section(run, level=level))
    parts.append(episode_section(run, gallery, level=level))
    return join(parts)


def _facts(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Return the figures that one looks for first; those that are unknown are left out."""
    minutes_s = _seconds(summary.minutes)
    last = f"mean of the last {summary.final_return_episodes:,} episodes" if summary.final_return_episodes else ""
    use, over = share(summary.cpu_share_of_machine), span_words([summary.use_over])
    facts = [
        ("final return", amount(summary.final_return), last),
        ("best return", amount(summary.best_return), f"of {summary.episodes:,} episodes"),
        ("steps", amount(summary.steps), f"in {span(minutes_s)}" if minutes_s is not None else ""),
        ("updates", amount(summary.updates), _beside("{} samples per step", summary.samples_per_step)),
        ("steps per second", amount(summary.steps_per_s), span_words([summary.speed_over])),
        ("updates per second", amount(summary.updates_per_s), span_words([summary.speed_over])),
        (
            "CPU cores used",
            amount(summary.cpu_cores_used),
            f"{use} of the cores it may use, {over}" if use != DASH else over,
        ),
        ("CPU time", span(summary.cpu_s), _beside("{} s per 1,000 steps", summary.cpu_s_per_1000_steps)),
        ("GPU utilisation", amount(summary.gpu_utilisation_percent, "%"), _beside("{} GPU seconds", summary.gpu_s)),
        ("energy of the GPUs", amount(_in_kilojoules(summary.energy_j), "kJ"), ""),
        ("peak memory", size(summary.rss_peak_bytes), "resident, of all processes"),
        ("peak PSS", size(summary.pss_peak_bytes), "shared pages counted once"),
    ]
    return [fact for fact in facts if not fact[1].startswith(DASH)]


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def _beside(words: str, value: float | None) -> str:
    return "" if value is None else words.format(amount(value))


def _in_kilojoules(energy_j: float | None) -> float | None:
    return None if energy_j is None else energy_j / 1e3


def _circumstances(run: ShownRun) -> Html:
    """Return where and with what it ran."""
    summary, recorded = run.summary, run.files.run or {}
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
        (
            "the monitor itself",
            None if summary.monitor_cpu_share is None else f"{share(summary.monitor_cpu_share)} CPU",
        ),
    ]
    rows = [(name, _words(value)) for name, value in known if value not in (None, "", DASH)]
    items = "".join(f"<div><dt>{Html.of(name).markup}</dt><dd>{Html.of(text).markup}</dd></div>" for name, text in rows)
    return Html(f'<dl class="about">{items}</dl>')


def _start(files: RunFiles) -> str:
    recorded: Mapping[str, Any] = files.run or {}
    created = recorded.get("created_unix_s")
    if not isinstance(created, int | float):
        created = files.events[0].get("unix_s") if files.events else None
    return moment(created) if isinstance(created, int | float) else DASH


def _short_commit(commit: object) -> str | None:
    """Return as much of a commit as one needs to find it, and whether the source was edited."""
    return re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", commit) if isinstance(commit, str) else None


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _time_section(split: PhaseSplit, run: ShownRun, gallery: Gallery, *, level: int) -> Html:
    charts = phase_charts(split)
    if not charts:
        unknown = Html("<p>The files of this run do not tell.</p>")
        return section("Where the time went", unknown, identity=f"{run.key}-time", level=level)
    total_s = sum(split.phases_s.values())
    rows = [(name, span(seconds), share(seconds / total_s)) for name, seconds in split.phases_s.items() if total_s]
    rows += [(f"{name}, beside training", span(seconds), DASH) for name, seconds in split.beside_s.items()]
    times = [table("Phases of the run", ("phase", "time", "share"), rows, numeric=(1, 2), css="card")] if rows else []
    drawn = [gallery.chart(chart, owner=run.files.label) for chart in charts]
    grid = Html(f'<div class="grid">{join([*drawn, *times]).markup}</div>')
    return section("Where the time went", grid, identity=f"{run.key}-time", level=level)


def _hardware_section(run: ShownRun, gallery: Gallery, *, level: int) -> Html:
    identity = f"{run.key}-hardware"
    subjects = hardware_charts(run.files)
    processes = process_section(run, level=level + 1)
    if not subjects and processes is None:
        return section("Hardware", Html(f"<p>{NO_HARDWARE}</p>"), identity=identity, level=level)
    parts = [
        section(subject, gallery.grid(charts, owner=run.files.label), level=level + 1)
        for subject, charts in subjects.items()
    ]
    if processes is not None:
        parts.append(processes)
    lead = f"{len(run.files.hardware):,} samples. Where the machine does not have a value, there is no chart for it."
    return section("Hardware", *parts, identity=identity, lead=lead, level=level)


def _settings_section(run: ShownRun, *, level: int) -> Html:
    found = settings_table(run.files)
    parts: list[Content] = []
    if found.changes:
        rows = [
            (change.when, change.setting, change.requested, change.effective, change.why) for change in found.changes
        ]
        head = ("when", "setting", "requested", "effective", "why")
        parts.append(table("Settings that were changed", head, rows, css="card wrap"))
    else:
        text = (
            "Every setting is in force as it was asked for." if found.settings else "There are no settings on record."
        )
        parts.append(Html(f"<p>{text}</p>"))
    if found.settings:
        settings = table("All settings", ("setting", "in force"), found.settings, css="card columns")
        parts.append(folded(f"All {len(found.settings)} settings", settings, css="fold"))
    return section("Requested → effective", *parts, identity=f"{run.key}-settings", level=level)


def _event_section(run: ShownRun, *, level: int) -> Html:
    events = event_table(run.files)
    identity = f"{run.key}-events"
    if not events:
        return section("Events", Html("<p>None on record.</p>"), identity=identity, level=level)
    rows = [
        (span(_seconds(line.minutes)), amount(line.steps), line.event, line.details or DASH)
        for line in events[-MAX_EVENTS:]
    ]
    lead = f"The last {MAX_EVENTS} of {len(events):,}." if len(events) > MAX_EVENTS else ""
    shown = table("Events", ("after", "steps", "event", "details"), rows, numeric=(0, 1), css="card long wrap")
    return section("Events", shown, identity=identity, lead=lead, level=level)
