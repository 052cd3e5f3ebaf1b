"""What a page shows of several runs: scores, learning curves, cost, and how utilisation relates to learning.

`report.html.j2` lays it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from redline.report.bands import Curve, CurveGroup, learning_chart
from redline.report.charts import Chart, Line, LineChart, Spread, SpreadChart
from redline.report.parts import DASH, Cell, Content, Table, amount, share, small, span
from redline.report.relation import Correlation, Group, Relation
from redline.report.run_page import ShownRun, headline, newest_evaluation, span_words
from redline.report.run_series import Axis, learning_curve
from redline.report.run_summary import RunSummary

UNKNOWN = "unknown"
BY_RUN = "run"  # where runs tell no algorithm
MAX_POINTS = 2_000  # of a chart of all runs
USES = {
    "cpu_share_of_machine": ("CPU", "CPU utilisation, % of the cores it may use", 100.0),
    "gpu_utilisation_percent": ("GPU", "GPU utilisation, %", 1.0),
}
OUTCOME_WORDS = {
    "steps_per_s": "steps per second",
    "updates_per_s": "updates per second",
    "final_return": "return, last 100",
    "mean_return": "mean return of the run",
}


@dataclass(frozen=True)
class Measure:
    """How a field of `RunSummary` is shown across runs."""

    title: str  # of its chart
    unit: str
    column: str = ""  # of a table; "" where `relation` has no estimates of it
    write: Callable[[float | None], str] = amount
    factor: float = 1.0  # from the field's unit to the chart's
    over: str = ""  # field of the summary that names its span


MEASURES = {
    "final_return": Measure("Return", "mean of the last 100 episodes, unclipped", "return, last 100"),
    "steps_per_s": Measure("Steps per second", "steps/s", "steps/s", over="speed_over"),
    "updates_per_s": Measure("Updates per second", "updates/s", "updates/s", over="speed_over"),
    "cpu_share_of_machine": Measure(
        "CPU utilisation", "% of the cores it may use", "CPU utilisation", write=share, factor=100.0, over="use_over"
    ),
    "gpu_utilisation_percent": Measure("GPU utilisation", "%, mean over GPUs", "GPU utilisation, %", over="use_over"),
    "cpu_s_per_1000_steps": Measure("CPU time for 1,000 steps", "CPU seconds", "CPU s per 1,000 steps"),
    "return_gained_per_cpu_minute": Measure(
        "Return gained per CPU minute", "final − first return, per CPU minute", "return gained per CPU min"
    ),
    "cpu_s": Measure("Total CPU time", "CPU seconds"),
    "gpu_s": Measure("Total GPU time", "GPU seconds"),
    "energy_j": Measure("GPU energy", "kJ", factor=1e-3),
    "power_w": Measure("GPU power", "W, mean over the samples"),
}
SCORES: dict[str, Callable[[RunSummary], Content]] = {
    "return, last 100": headline,
    "newest evaluation": newest_evaluation,
}
COLUMNS: dict[str, Callable[[RunSummary], Content]] = {
    "best episode": lambda found: amount(found.best_return),
    "steps": lambda found: amount(found.steps),
    "time": lambda found: span(None if found.minutes is None else found.minutes * 60),
    "steps/s": lambda found: amount(found.steps_per_s),
    "updates/s": lambda found: amount(found.updates_per_s),
    "cores used": lambda found: amount(found.cpu_cores_used),
    "CPU use": lambda found: share(found.cpu_share_of_machine),
    "GPU use": lambda found: amount(found.gpu_utilisation_percent, "%"),
    "CPU time": lambda found: span(found.cpu_s),
    "GPU time": lambda found: span(found.gpu_s),
    "GPU energy": lambda found: amount(None if found.energy_j is None else found.energy_j / 1e3, "kJ"),
}
SETTINGS: dict[str, Callable[[RunSummary], str]] = {  # columns shown if runs differ in them
    "algorithm": lambda found: found.algorithm or DASH,
    "env": lambda found: found.env or DASH,
    "seed": lambda found: amount(found.seed),
    "batch": lambda found: amount(found.batch_size),
    "envs": lambda found: amount(found.num_envs),
    "threads": lambda found: amount(found.learner_threads),
}
WORDS = {"algorithm", "env"}  # columns that hold words


class Game:
    """The runs of one game in groups. Returns of different games have no common scale."""

    def __init__(self, env: str, runs: list[ShownRun], relation: Relation, colours: dict[str, int]) -> None:
        """Group the runs; `colours` holds those of earlier games and gets the new groups'."""
        groupings: dict[str, list[Group]] = {}
        for group in relation.groups:
            if group.env == env:
                groupings.setdefault(group.by, []).append(group)
        first = "algorithm" if groupings else BY_RUN
        self.runs = runs
        # the first setting that differs: algorithm, batch size, threads / cores; each run apart where none is known
        self.by = next((name for name, groups in groupings.items() if len(groups) > 1), first)
        self.groups = groupings.get(self.by, [])
        self.colours = colours  # of each group, the same on the whole page
        for kind in (*(group.name for group in self.groups), *map(self.kind, runs)):
            colours.setdefault(kind, len(colours))
        self.scores = _group_scores(self) if self.by != BY_RUN else None
        self.learning = small(learning_charts(self, ("steps", "minutes")), MAX_POINTS)
        self.use = small([*spread_charts(self), *learning_charts(self, ("cpu_s", "gpu_s"))], MAX_POINTS)
        self.relation = small(relation_charts(self), MAX_POINTS)

    @property
    def charts(self) -> list[Chart]:
        """All charts of the game."""
        return [*self.learning, *self.use, *self.relation]

    def kind(self, run: ShownRun) -> str:
        """Return the group of a run."""
        found = (group.name for group in self.groups if run.files.label in group.labels)
        return run.files.label if self.by == BY_RUN else next(found, run.summary.algorithm or UNKNOWN)

    def words(self, kind: str) -> str:
        """Return how a legend names a group."""
        return kind if self.by in ("algorithm", BY_RUN) else f"{self.by} {kind}"


class Comparison:
    """Several runs side by side, each game apart."""

    def __init__(self, runs: Sequence[ShownRun], relation: Relation) -> None:
        self.relation = relation
        left_out = {run.label: run.why for run in relation.left_out}
        self.left_out = [Cell(label, note=why, is_strong=True) for label, why in left_out.items()]
        self.runs = [run for run in runs if run.files.label not in left_out]
        envs: dict[str, list[ShownRun]] = {}
        for run in self.runs:
            envs.setdefault(run.summary.env or UNKNOWN, []).append(run)
        colours: dict[str, int] = {}
        self.games = {env: Game(env, members, relation, colours) for env, members in envs.items()}
        self.all_runs = _all_runs([run for game in self.games.values() for run in game.runs]) if self.runs else None
        self.correlations = _correlation_table(relation.correlations)
        self.groups = _group_tables(relation.groups, shown={game.by for game in self.games.values()})
        self.troubles = [
            Cell(run.files.label, note=problem, is_strong=True) for run in runs for problem in run.files.problems
        ]

    @property
    def links(self) -> list[tuple[str, str]]:
        """The ids of its parts, each with its name."""
        first = next(iter(self.games.values()), None)
        known = [
            ("learning-0", "learning", first and (first.scores or first.learning)),
            ("all-runs", "all runs", self.runs),
            ("use-0", "speed, hardware and cost", first and first.use),
            ("relation", "utilisation and learning", True),
            ("runs", "each run", True),
        ]
        return [(identity, words) for identity, words, is_there in known if is_there]

    def describe(self) -> str:
        """Say in one line what is compared."""
        summaries = [run.summary for run in self.runs]
        kinds = {
            "algorithm": {summary.algorithm for summary in summaries},
            "game": {summary.env for summary in summaries},
            "machine": {summary.host for summary in summaries},
        }
        known = {kind: sorted(filter(None, names)) for kind, names in kinds.items()}
        words = [names[0] if len(names) == 1 else f"{len(names)} {kind}s" for kind, names in known.items() if names]
        return " · ".join(words)


def learning_charts(game: Game, axes: tuple[Axis, ...]) -> list[LineChart]:
    """Return a chart per axis with one line per group and a band over the group's runs."""
    return list(filter(None, (learning_chart(axis, _curve_groups(game, axis)) for axis in axes)))


def _curve_groups(game: Game, axis: Axis) -> list[CurveGroup]:
    groups: dict[str, list[Curve]] = {}
    for run in game.runs:
        groups.setdefault(game.kind(run), []).append((run.files.label, learning_curve(run.files, axis)))
    return [CurveGroup(game.words(kind), game.colours[kind], curves) for kind, curves in groups.items()]


def _group_scores(game: Game) -> Table:
    """Return each group's headline score, newest evaluation, steps and speed; without columns that no run fills."""
    summaries = {run.files.label: run.summary for run in game.runs}
    rows: list[dict[str, Content]] = []
    for group in game.groups:
        members = [summaries[label] for label in group.labels if label in summaries]
        evaluated = [run.evaluation_return for run in members if run.evaluation_return is not None]
        steps = [run.steps for run in members if run.steps is not None]
        note = f"{len(evaluated)} runs" if len(evaluated) != len(members) else ""
        rows.append(
            {
                game.by: Cell(game.words(group.name), is_strong=True),
                "runs": str(len(members)),
                "return, last 100": estimate("final_return", group, is_strong=True),
                "newest evaluation": Cell(amount(fmean(evaluated)), note=note) if evaluated else DASH,
                "steps": amount(fmean(steps)) if steps else DASH,
                "steps/s": estimate("steps_per_s", group),
            }
        )
    head = [name for name in rows[0] if any(row[name] != DASH for row in rows)] if rows else []
    return Table("Scores", head, [[row[name] for name in head] for row in rows], numeric=range(1, len(head)))


def _all_runs(runs: Sequence[ShownRun]) -> Table:
    """Return a row per run, without columns that no run has and settings that all share."""
    differing = {name: cell for name, cell in SETTINGS.items() if len({cell(run.summary) for run in runs}) > 1}
    shown: dict[str, list[Content]] = {}
    for name, cell in {**SCORES, **differing, **COLUMNS}.items():
        cells = [cell(run.summary) for run in runs]
        if any((found.text if isinstance(found, Cell) else found) != DASH for found in cells):
            shown[name] = cells
    rows: list[list[Content]] = [
        [
            Cell(run.files.label, note=run.files.path.resolve().name, href=f"#{run.key}"),
            *(cells[place] for cells in shown.values()),
        ]
        for place, run in enumerate(runs)
    ]
    numeric = [place for place, name in enumerate(shown, start=1) if name not in WORDS]
    return Table("All runs", ("run", *shown), rows, numeric=numeric)


def spread_charts(game: Game) -> list[SpreadChart]:
    """Return what each group used and reached, a dot per run."""
    summaries = {run.files.label: run.summary for run in game.runs}
    groups = game.groups if game.by != BY_RUN else [Group(UNKNOWN, BY_RUN, name, (name,), {}) for name in summaries]
    charts = []
    for name, measure in MEASURES.items():
        told = [run for run in summaries.values() if getattr(run, name) is not None]
        over = span_words(getattr(run, measure.over) for run in told) if measure.over else ""
        unit = ", ".join(filter(None, (measure.unit, over)))
        rows = [_spread(group, name, summaries, game.colours) for group in groups]
        charts.append(SpreadChart(name.replace("_", "-"), measure.title, unit, tuple(filter(None, rows))))
    return [chart for chart in charts if chart.rows]


def _spread(group: Group, name: str, summaries: dict[str, RunSummary], colours: dict[str, int]) -> Spread | None:
    """Return the values of a group's runs; None where no run has one."""
    factor = MEASURES[name].factor
    found = (getattr(summaries[label], name) for label in group.labels)
    values = tuple(value * factor for value in found if value is not None)
    if not values:
        return None
    known = group.estimates.get(name)
    low = high = None
    if known is not None and known.interval is not None:
        low, high = (end * factor for end in known.interval)
    return Spread(group.name, values, fmean(values), low, high, colours.get(group.name, 0))


def relation_charts(game: Game) -> list[LineChart]:
    """Return learning and speed against utilisation, a dot per run."""
    charts = []
    for use, (_, use_words, factor) in USES.items():
        for outcome, title in (("final_return", "Return, last 100"), ("steps_per_s", "Steps per second")):
            points: dict[str, list[tuple[float, float]]] = {}
            for run in game.runs:
                x, y = getattr(run.summary, use), getattr(run.summary, outcome)
                if x is not None and y is not None:
                    points.setdefault(game.kind(run), []).append((x * factor, y))
            lines = tuple(
                Line(game.words(name), [x for x, _ in found], [y for _, y in found], game.colours[name], is_points=True)
                for name, found in points.items()
            )
            if lines:
                name = f"{use}-{outcome}".replace("_", "-")
                charts.append(LineChart(name, f"{title}, against utilisation", "one dot per run", use_words, lines))
    return charts


def _group_tables(found: Sequence[Group], *, shown: set[str]) -> dict[str, Table]:
    """Return the means of all groups, a table per grouping, but for a grouping that all games are `shown` by."""
    tables = {}
    for by in dict.fromkeys(group.by for group in found):
        groups = [group for group in found if group.by == by]
        if shown == {by} or len(groups) == len({group.env for group in groups}):  # one group per game says nothing
            continue
        told = {name for group in groups for name in group.estimates}
        columns = {name: measure.column for name, measure in MEASURES.items() if measure.column and name in told}
        rows = [
            [group.env, group.name, amount(len(group.labels)), *(estimate(name, group) for name in columns)]
            for group in groups
        ]
        head = ("game", by, "runs", *columns.values())
        tables[by] = Table(f"Runs by {by}", head, rows, numeric=range(2, len(head)))
    return tables


def _correlation_table(correlations: Sequence[Correlation]) -> Table:
    rows: list[list[Content]] = []
    for found in correlations:
        rows.append(
            [
                found.env,
                found.within,
                USES[found.utilisation][0],
                OUTCOME_WORDS[found.outcome],
                amount(found.n),
                amount(found.runs),
                _rho(found.rho),
                DASH if found.interval is None else " … ".join(map(_rho, found.interval)),
                "" if found.rho is None else Cell("", scale=_scale(found.rho, found.interval)),
                share(found.by_chance),
                found.verdict,
            ]
        )
    head = ("game", "within", "use of", "against", "settings", "runs", "ρ", "90 % interval", "−1 · 0 · 1")
    return Table("Rank correlations", (*head, "by chance", "reading"), rows, numeric=(4, 5, 6, 7, 9))


def _scale(rho: float, interval: tuple[float, float] | None) -> tuple[float, float, float]:
    low, high = interval or (rho, rho)
    return low, rho, high


def _rho(value: float | None) -> str:
    return DASH if value is None else f"{value:+.2f}".replace("-", "−")


def estimate(measure: str, group: Group, *, is_strong: bool = False) -> Content:
    """Return a group's mean with its interval below."""
    found = group.estimates.get(measure)
    if found is None:
        return DASH
    write = MEASURES[measure].write
    band = "" if found.interval is None else f"{write(found.interval[0])} … {write(found.interval[1])}"
    if found.n != len(group.labels):  # some of its runs lack this field
        band = " · ".join(filter(None, (f"n = {found.n}", band)))
    return Cell(write(found.mean), note=band or ("one run" if found.n == 1 else ""), is_strong=is_strong)
