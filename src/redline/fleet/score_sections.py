"""What a page shows of how well a fleet learns: scores per game, over all games, and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from redline.envs.reference_scores import reference_of
from redline.fleet.aggregate import STATISTICS, Value
from redline.fleet.results import AXES, counted
from redline.fleet.scores import Overall, Score
from redline.jsonl import plain_text
from redline.report.bands import SHORT_SHARE, Curve, CurveGroup, learning_chart
from redline.report.charts import Chart, LineChart, Spread, SpreadChart
from redline.report.parts import DASH, Cell, Content, Notice, Part, Section, Table, Text, amount, grid
from redline.report.run_series import Axis

MAX_POINTS = 2_000  # of a chart
BEYOND_HUMAN = "0 is random play, 1 a human"
TITLES = {"median": "Median", "IQM": "Interquartile mean", "mean": "Mean", "optimality gap": "Optimality gap"}

Colours = Mapping[str, int]  # of kinds


def colours_of(scores: Sequence[Score]) -> dict[str, int]:
    """Return the colour of each kind, the same on the whole page."""
    return {kind: place for place, kind in enumerate(dict.fromkeys(score.kind for score in scores))}


# Scores


def score_section(scores: Sequence[Score], colours: Colours) -> Section:
    """Return a table of games and kinds, and one with everything that is known of each score."""
    lead = (
        "Each run's score is the mean return of its last 100 training episodes, of fewer where fewer have ended; the "
        "table has its mean over runs with different seeds, and the 90 % interval of that (Student's t; none for fewer "
        "than three runs). Evaluations are the newest one of each run."
    )
    told = [score for score in scores if score.values]
    if not told:
        return Section("Scores", [Text("No run has a score yet.")], identity="scores", link="scores")
    parts: list[Part] = [_matrix(scores)]
    left_out = [
        Cell(result.slot.name, note=result.left_out, is_strong=True)
        for score in scores
        for result in score.results
        if result.left_out and result.finding is not None
    ]
    parts += [Notice("Not counted", left_out, css="missing")] if left_out else []
    charts = [_spread_chart(game, [score for score in told if score.game == game], colours) for game in _games(told)]
    each: list[Part] = [_details(told), grid(charts, max_points=MAX_POINTS)]
    note = "a dot is a run, a stroke their mean, a band the interval"
    parts.append(Section("Every score", each, identity="every-score", is_folded=True, note=note))
    return Section("Scores", parts, identity="scores", link="scores", lead=lead)


def _games(scores: Sequence[Score]) -> list[str]:
    return list(dict.fromkeys(score.game for score in scores))


def _matrix(scores: Sequence[Score]) -> Table:
    """Return the scores of the newest list: a row per game, a column per algorithm, and those of random and a human."""
    found = {(score.game, score.algorithm): score for score in scores if score.is_listed}
    algorithms = dict.fromkeys(algorithm for _, algorithm in found)
    evaluated = {algorithm for (_, algorithm), score in found.items() if score.evaluations}
    columns = {name: (name, f"{name}, evaluation")[: 2 if name in evaluated else 1] for name in algorithms}
    rows: list[list[Content]] = []
    for game in dict.fromkeys(game for game, _ in found):
        row: list[Content] = [Cell(game, is_strong=True)]
        for algorithm in algorithms:
            score = found.get((game, algorithm))
            row += [_score(score), _evaluation(score)][: len(columns[algorithm])]
        reference = reference_of(game)
        row += [DASH if reference is None else _published(reference[who]) for who in ("random", "human")]
        rows.append(row)
    head = ("game", *(name for names in columns.values() for name in names), "random play", "human")
    return Table("Scores", head, rows, numeric=range(1, len(head)))


def _published(score: float) -> str:
    """Return a reference score with the digits that it was published with."""
    return f"{score:,.1f}".replace("-", "−")


def _score(score: Score | None) -> Content:
    if score is None or score.mean is None:
        return DASH
    version = f", v{score.since}" if score.since > 1 else ""
    return Cell(amount(score.mean), note=_range(score.interval, len(score.values)) + version, is_strong=True)


def _evaluation(score: Score | None) -> Content:
    if score is None or not score.evaluations:
        return DASH
    return Cell(amount(fmean(score.evaluations)), note=f"n = {len(score.evaluations)}")


def _range(interval: tuple[float, float] | None, count: int) -> str:
    ends = "" if interval is None else f"{amount(interval[0])} … {amount(interval[1])}, "
    return f"{ends}n = {count}"


def _details(scores: Sequence[Score]) -> Table:
    scored = ("return, last 100", "90 % interval", "episodes of each", "lowest", "highest", "human-normalised")
    head = ("game", "runs", "counted", *scored, "evaluation", "steps of each")
    rows = [
        (
            score.game,
            score.kind,
            f"{len(score.values)} of {len(score.results)}",
            amount(score.mean),
            DASH if score.interval is None else f"{amount(score.interval[0])} … {amount(score.interval[1])}",
            _ends(
                [result.finding.summary.final_return_episodes for result in counted(score.results) if result.finding]
            ),
            amount(min(score.values)),
            amount(max(score.values)),
            amount(fmean(score.normalised)) if score.normalised else DASH,
            _evaluation(score),
            _ends(score.steps),
        )
        for score in scores
    ]
    return Table("Every score", head, rows, numeric=range(2, len(head)), css="card long")


def _ends(values: Sequence[float]) -> str:
    if not values:
        return DASH
    low, high = min(values), max(values)
    return amount(low) if low == high else f"{amount(low)} … {amount(high)}"


def _spread_chart(game: str, scores: Sequence[Score], colours: Colours) -> SpreadChart:
    rows = []
    for score in scores:
        low, high = score.interval or (None, None)
        rows.append(Spread(score.kind, tuple(score.values), fmean(score.values), low, high, colours[score.kind]))
    return SpreadChart(f"score-{game}", game, "mean of the last 100 episodes, unclipped", tuple(rows))


# All games together


def overall_section(
    overall: Sequence[Overall], shared: Sequence[Overall], scores: Sequence[Score], colours: Colours
) -> Section:
    """Return the human-normalised aggregates of each algorithm."""
    title, identity, link = "All games together", "overall", "all games"
    if not overall:
        has_reference = any(reference_of(game) is not None for game in _games(scores))
        why = "No run has a score yet" if has_reference else "No game of the fleet has reference scores"
        return Section(title, [Text(f"{why}.")], identity, link=link)
    lead = (
        "Human-normalised scores, where random play is 0 and a human 1: median and mean of the games' means, the mean "
        "of the middle half of all runs (IQM), and how far runs fall short of a human (optimality gap: less is "
        "better). Intervals: 95 %, stratified bootstrap over seeds as by Agarwal et al. (2021), where every game has "
        "three runs or more. They say how other seeds might have come out, not other games."
    )
    parts: list[Part] = [
        _overall_table("All games", overall),
        grid(_overall_charts(overall, colours), max_points=MAX_POINTS),
    ]
    without = [game for game in _games(scores) if reference_of(game) is None]
    if without:
        parts.append(Text(f"Without reference scores, and so not in here: {', '.join(map(plain_text, without))}."))
    if shared:
        words = f"The algorithms have scores in different games; these are the {len(shared[0].games)} that all have."
        parts.append(Section("The games that all have", [_overall_table("Shared games", shared)], lead=words))
    return Section(title, parts, identity, lead=lead, link=link)


def _overall_table(name: str, overall: Sequence[Overall]) -> Table:
    rows: list[list[Content]] = [
        [
            Cell(one.name, note=one.found.why_no_interval, is_strong=True),
            amount(one.found.games),
            amount(one.found.runs),
            *(_value(one.found.values[statistic]) for statistic in STATISTICS),
        ]
        for one in overall
    ]
    head = ("algorithm", "games", "runs", *STATISTICS)
    return Table(name, head, rows, numeric=range(1, len(head)))


def _value(value: Value) -> Cell:
    ends = "" if value.interval is None else f"{amount(value.interval[0])} … {amount(value.interval[1])}"
    return Cell(amount(value.point), note=ends)


def _overall_charts(overall: Sequence[Overall], colours: Colours) -> list[Chart]:
    """Return a chart per statistic, where two or more algorithms can be compared."""
    if len(overall) < 2:
        return []
    return [
        SpreadChart(
            f"overall-{statistic}".replace(" ", "-"),
            TITLES[statistic],
            "less is better" if statistic == "optimality gap" else BEYOND_HUMAN,
            tuple(
                _overall_row(one, one.found.values[statistic], colours.get(one.name, place))
                for place, one in enumerate(overall)
            ),
        )
        for statistic in STATISTICS
    ]


def _overall_row(one: Overall, value: Value, colour: int) -> Spread:
    low, high = value.interval or (None, None)
    return Spread(one.name, (value.point,), value.point, low, high, colour)


# Learning curves


def learning_section(scores: Sequence[Score], colours: Colours) -> list[Section]:
    """Return the learning curves of each game against steps, and folded against time."""
    lead = (
        "A line is the median over seeds, a band spans them all; both end with the shortest run. A run less than "
        f"{SHORT_SHARE:.0%} as long as the longest of its kind is drawn apart."
    ).replace("%", " %")
    by_steps, by_time = (_learning_charts(scores, axis, colours) for axis in AXES)
    if not by_steps and not by_time:
        nothing = Text("No episode has ended, so there is no curve.")
        return [Section("Learning curves", [nothing], identity="learning", link="learning")]
    found = [
        Section("Learning curves", [grid(by_steps, max_points=MAX_POINTS)], "learning", lead=lead, link="learning")
    ]
    note = "what counts if you pay for hours"
    if by_time:
        parts = [grid(by_time, max_points=MAX_POINTS)]
        found.append(Section("Learning curves against time", parts, "time", lead=lead, is_folded=True, note=note))
    return found


def _learning_charts(scores: Sequence[Score], axis: Axis, colours: Colours) -> list[LineChart]:
    charts = []
    for game in _games(scores):
        groups = [
            CurveGroup(score.kind, colours[score.kind], _curves(score, axis)) for score in scores if score.game == game
        ]
        charts.append(learning_chart(axis, groups, name=f"return-{axis}-{game}", title=game))
    return [chart for chart in charts if chart is not None]


def _curves(score: Score, axis: Axis) -> list[Curve]:
    return [
        (f"{score.kind}, seed {result.slot.seed}, {result.status.state}", result.finding.curves[axis])
        for result in counted(score.results)
        if result.finding is not None
    ]
