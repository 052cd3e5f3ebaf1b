"""The tables of docs/recipes.md: what each recipe reached with every seed, and what was tried before it was chosen."""

from collections.abc import Mapping
from typing import Any

from learning_tasks import TRIAL_STEPS
from redline.recipes import Recipe, find_recipe, recipe_names
from run_reading import as_text, markdown_table

NONE = "–"
NOT_COMPARED = "not compared"  # of games that no peer was trained on
TRIED = "tried-"
GAMES = "games-by-minutes"
GAME_TASK = "game-"  # of the tasks of Redline's runs in that record
TRAINERS = {"sb3-ppo": "Stable-Baselines3 PPO", "sb3-dqn": "Stable-Baselines3 DQN"}
STEPS = tuple(map(str, TRIAL_STEPS))

Records = Mapping[str, Mapping[str, Any]]


def make_recipes_table(records: Records) -> str:
    """Return one row per recipe: game, algorithm, departures from the protocol, and every seed of its record."""
    head = ("recipe", "game", "algorithm", "differs from the usual protocol by", "every seed of its record")
    rows = []
    for name in recipe_names():
        recipe = find_recipe(name)
        check_results(recipe, records)
        seeds = "; ".join(_told(row) for row in _recipe_rows(recipe, records)) or NONE
        rows.append((f"`{name}`", recipe.game, recipe.algorithm, recipe.departs, seeds))
    return markdown_table(head, rows)


def make_tried_table(records: Records, recipe: str) -> str:
    """Return one row per run that was tried, the best at its end first."""
    head = ("algorithm and settings", "seed", *(f"at {int(steps) // 1_000}k" for steps in STEPS), "last")
    rows = []
    for row in sorted(_rows(records, f"{TRIED}{recipe}"), key=lambda row: -row["mean_return"]):
        at = [as_text(row["at_steps"].get(steps)) for steps in STEPS]
        last = f"{as_text(row['mean_return'])} at {row['steps'] // 1_000}k"
        rows.append((f"{row['algorithm']} `{row['flags']}`", str(row["seed"]), *at, last))
    return markdown_table(head, rows)


def make_side_by_side_table(records: Records) -> str:
    """Return one row per trainer and seed: what it reached on Pong, and after how many minutes."""
    head = ("trainer", "seed", "minutes", "steps", "mean return of the last ten games", "solved")
    rows = []
    for row in (row for row in _rows(records, "side-by-side-pong") if row.get("curve")):
        last = row["curve"][-1]
        cells = (f"{last['minutes']:.1f}", f"{last['steps']:,}", as_text(last["mean_return"]))
        solved = f"after {row['minutes']:.1f} min ({as_text(row['score'])})" if row.get("solved") else "no"
        rows.append((TRAINERS.get(row["algorithm"], "Redline, recipe pong"), str(row["seed"]), *cells, solved))
    return markdown_table(head, rows)


def check_results(recipe: Recipe, records: Records) -> None:
    """Refuse a recipe whose results differ from those of its record, if there is one."""
    has_target = bool(_rows(records, f"recipe-{recipe.name}"))
    wanted = [
        (row["seed"], round(row["minutes"], 1), round(row["score"], 1), row["solved"] if has_target else None)
        for row in _recipe_rows(recipe, records)
        if "error" not in row
    ]
    if not wanted:
        return
    told = [(one.seed, one.minutes, one.score, one.solved) for one in recipe.results]
    if told != wanted:
        raise ValueError(f"recipe {recipe.name} tells {told}, but its newest record says {wanted}")


def make_games_table(records: Records) -> str:
    """Return one row per game and trainer: what it reached in the same minutes."""
    head = ("game", "trainer", "seed", "steps", "mean return of the last ten games", "mean of 30 games afterwards")
    rows = _rows(records, GAMES)
    ours = [row for row in rows if row["algorithm"] not in TRAINERS]
    theirs = {row["flags"][0]: row for row in rows if row["algorithm"] in TRAINERS}
    lines = []
    for row in ours:
        game = row["task"].removeprefix(GAME_TASK)
        trainer = f"Redline, recipe {row['flags'][1]}"
        lines.append(_game_cells(game, trainer if game in theirs else f"{trainer} ({NOT_COMPARED})", row))
        if game in theirs:
            lines.append(_game_cells(game, TRAINERS[theirs[game]["algorithm"]], theirs[game]))
    return markdown_table(head, lines)


def _game_cells(game: str, trainer: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in row:
        return (game, trainer, str(row["seed"]), NONE, f"failed: {row['error']}", NONE)
    last = as_text(row["curve"][-1]["mean_return"]) if row["curve"] else NONE
    return (game, trainer, str(row["seed"]), f"{row['steps']:,}", last, as_text(row.get("score")))


def _recipe_rows(recipe: Recipe, records: Records) -> list[Mapping[str, Any]]:
    """Return the seeds of a recipe's record: of its own, or of the games that were trained for the same minutes."""
    own = _rows(records, f"recipe-{recipe.name}")
    return own or [row for row in _rows(records, GAMES) if tuple(row["flags"][:2]) == ("--recipe", recipe.name)]


def _rows(records: Records, name: str) -> list[Mapping[str, Any]]:
    return list(records[name]["repeats"]) if name in records else []


def _told(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return f"seed {row['seed']}: failed"
    if row["task"].startswith(GAME_TASK):
        game = row["task"].removeprefix(GAME_TASK)
        return f"{game}, seed {row['seed']}: {row['minutes']:.1f} min, {as_text(row['score'])}"
    verdict = "solved" if row["solved"] else "not solved"
    return f"seed {row['seed']}: {verdict}, {row['minutes']:.1f} min, {as_text(row['score'])}"
