"""The rules of evaluations: when one is due, how it is played, and when a game counts as solved.

A game is solved when an evaluation reaches the target and further games with the same weights confirm it. A stop at the
first good evaluation would select lucky ones. So EPISODES games must reach the target, and CONFIRMING_EPISODES further
ones must nearly reach it again.
"""

import numpy as np

from redline.algorithms.family import Algorithm
from redline.exploration import Exploration, Greedy, Sampled
from redline.runtime.config import Job
from redline.runtime.counters import Counters, Scores

EPISODES = 10  # of an evaluation
CONFIRMING_EPISODES = 30  # with the same weights, in other games
CONFIRMING_SLACK = 1.0  # by which their mean may fall short of the target
TIME_SHARE = 0.10  # of a run that evaluations may take
# share of the way from the first returns to the target from which evaluations may follow closely
PROMISING = 0.85  # where training explores, and so plays worse than its evaluations
PROMISING_SAMPLED = 0.95  # where both draw from the policy
UNPROMISING_INTERVAL_S = 300.0  # between two evaluations before that
PROMISING_SHARE = 0.25  # of the time that evaluations may take from there on, as far as TIME_SHARE of the run allows
EXPECTED_S = 1.0  # of an evaluation, before the first

CURVE_BEGINS = 0.15  # share of the way from which the curve is extrapolated
CURVE_SHARE = 1 / 3  # of the time: the newest part, which is extrapolated
LEAST_EPISODES = 10  # in it
MOST_TIMES = 20.0  # the time so far: a slower rise is none


def acting(job: Job) -> tuple[Exploration, float]:
    """Return how a run's evaluations choose actions, and ε.

    Without a target they are greedy, with the paper's ε. With a target a policy draws: its likeliest actions may loop.
    """
    explore = job.algorithm.explore
    if job.limits.target_eval_return is None:
        return Greedy(), explore.evaluation_epsilon()
    return (Sampled() if isinstance(explore, Sampled) else Greedy()), 0.0


def describe_acting(job: Job) -> str:
    """Say how a run's evaluations choose actions, if not as the algorithm's paper does."""
    if job.limits.target_eval_return is None:
        return ""
    return "sampled" if isinstance(acting(job)[0], Sampled) else "greedy, ε = 0"


def num_episodes(job: Job) -> int:
    """Return how many episodes an evaluation has; a target asks for enough of them."""
    episodes = job.evaluator.episodes
    return episodes if job.limits.target_eval_return is None else max(EPISODES, episodes)


def is_confirmed(mean_return: float, target: float) -> bool:
    """Tell whether the mean of the confirming episodes is near enough to the target."""
    return mean_return >= target - CONFIRMING_SLACK


def describe_confirmation(mean: float, target: float) -> str:
    """Say whether further games with the same weights confirm an evaluation that reached the target."""
    needed = target - CONFIRMING_SLACK
    verdict = "solved" if is_confirmed(mean, target) else "not solved yet"
    return (
        f"{CONFIRMING_EPISODES} further episodes with the same weights: mean {mean:.2f}, {needed:g} needed: {verdict}"
    )


def evaluation_is_due(job: Job, counters: Counters, scores: Scores, *, expected_s: float) -> bool:
    """Tell whether it is time for an inline evaluation, which will take about `expected_s`."""
    target = job.limits.target_eval_return
    if target is not None and is_due_by_target(job.algorithm, counters, scores, target=target, expected_s=expected_s):
        return True
    return is_due_by_steps(counters, job.evaluate_every_steps)


def is_due_by_steps(counters: Counters, every_steps: int) -> bool:
    """Tell whether a multiple of `every_steps` was passed since the newest evaluation; 0 is never."""
    return every_steps > 0 and counters.steps // every_steps > counters.evaluated_steps // every_steps


def is_due_by_target(
    algorithm: Algorithm, counters: Counters, scores: Scores, *, target: float, expected_s: float
) -> bool:
    """Tell whether an evaluation fits into its share of the time, and the weights have changed enough."""
    total_s = counters.time_s + counters.evaluation_s
    if counters.evaluation_s + expected_s > TIME_SHARE * (total_s + expected_s):
        return False
    since_s = counters.time_s - counters.evaluated_at_s
    way = way_done(scores, target)
    promising = PROMISING_SAMPLED if isinstance(algorithm.explore, Sampled) else PROMISING
    if way is not None and way >= promising:
        # nearly the same weights would only be another draw of luck
        return since_s >= min(expected_s * (1.0 / PROMISING_SHARE - 1.0), UNPROMISING_INTERVAL_S)
    return since_s >= UNPROMISING_INTERVAL_S


def way_done(scores: Scores, target: float) -> float | None:
    """Return how much of the way from the first episodes to the target the newest ones have gone; None at the start."""
    first, newest = scores.first_mean, scores.newest_mean
    if first is None or newest is None:
        return None
    return 1.0 if target <= first else (newest - first) / (target - first)


def projected_s(scores: Scores, *, target: float, now_s: float) -> float | None:
    """Return the seconds until the returns reach the target if they go on rising as they did lately.

    None while they do not rise, or too little is known.
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
