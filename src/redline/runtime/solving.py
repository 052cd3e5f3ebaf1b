"""When a game counts as solved: an evaluation reaches the target, and further games with the same weights confirm it.

To stop at the first good evaluation would pick luck. So the target must be reached by EPISODES games, and then nearly
reached again by CONFIRMING_EPISODES others.
"""

import numpy as np

from redline.algorithms.family import Algorithm
from redline.exploration import Exploration, Greedy, Sampled
from redline.runtime.counters import Counters, Scores

EPISODES = 10  # of an evaluation
CONFIRMING_EPISODES = 30  # with the same weights, in other games
CONFIRMING_SLACK = 1.0  # by which their mean may fall short of the target
TIME_SHARE = 0.10  # of a run that evaluations may take
# of the way from the first episodes to the target: from here on evaluations may follow closely
PROMISING = 0.85  # where exploration makes training play worse than it is evaluated
PROMISING_SAMPLED = 0.95  # where both draw from the policy
UNPROMISING_INTERVAL_S = 300.0  # between two evaluations before that
PROMISING_SHARE = 0.25  # of the time that evaluations may take from there on, as far as TIME_SHARE of the run allows
EXPECTED_S = 1.0  # of an evaluation, until there was one

CURVE_BEGINS = 0.15  # of the way: before that there is nothing to extend
CURVE_SHARE = 1 / 3  # of the time, the newest: what is extended
LEAST_EPISODES = 10  # in it
MOST_TIMES = 20.0  # the time that has passed: a rise that would take longer is none


def acting(algorithm: Algorithm) -> tuple[Exploration, float]:
    """Return how actions are chosen, and ε: drawn from a policy, whose likeliest actions may loop; else greedily."""
    return (Sampled() if isinstance(algorithm.explore, Sampled) else Greedy()), 0.0


def is_confirmed(mean_return: float, target: float) -> bool:
    """Tell whether the mean of the confirming episodes is near enough to the target."""
    return mean_return >= target - CONFIRMING_SLACK


def evaluation_is_due(
    algorithm: Algorithm, counters: Counters, scores: Scores, *, target: float, expected_s: float
) -> bool:
    """Tell whether an evaluation fits into its share of the time, and could tell something new."""
    total_s = counters.time_s + counters.evaluation_s
    if counters.evaluation_s + expected_s > TIME_SHARE * (total_s + expected_s):
        return False
    since_s = counters.time_s - counters.evaluated_at_s
    way = way_done(scores, target)
    promising = PROMISING_SAMPLED if isinstance(algorithm.explore, Sampled) else PROMISING
    if way is not None and way >= promising:
        # nearly the same weights once more would only be another draw
        return since_s >= min(expected_s * (1.0 / PROMISING_SHARE - 1.0), UNPROMISING_INTERVAL_S)
    return since_s >= UNPROMISING_INTERVAL_S


def way_done(scores: Scores, target: float) -> float | None:
    """Return how much of the way from the first episodes to the target the newest ones have gone; None at the start."""
    first, newest = scores.first_mean, scores.newest_mean
    if first is None or newest is None:
        return None
    return 1.0 if target <= first else (newest - first) / (target - first)


def projected_s(scores: Scores, *, target: float, now_s: float) -> float | None:
    """Return the seconds until the returns reach the target if they rise on as they did lately.

    None until there is a rise to go by, and where the returns fall.
    """
    way = way_done(scores, target)
    if way is None or way < CURVE_BEGINS:
        return None
    newest = [point for point in scores.curve if point[0] >= now_s * (1.0 - CURVE_SHARE)]
    if len(newest) < LEAST_EPISODES:
        return None
    times, returns = np.array(newest).T
    if np.ptp(times) <= 0.0:
        return None
    slope, start = np.polyfit(times - now_s, returns, 1)  # start: the line's height now
    missing = max(0.0, float(target - start))
    if slope <= 0.0 or missing > MOST_TIMES * now_s * slope:
        return None
    return missing / float(slope)
