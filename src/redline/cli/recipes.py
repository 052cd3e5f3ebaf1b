"""`redline recipes [NAME]`: settings for a game that are known to work, and what each seed of their record reached."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Annotated

import tyro

from redline.cli.main import DONE
from redline.cli.output import is_plain, print_json, print_table
from redline.cli.parsing import Json, Plain, parse
from redline.recipes import Recipe, find_recipe, recipe_names
from redline.units import number


@dataclass(frozen=True)
class RecipesFlags:
    """List the recipes, or print the file of one: redline recipes pong."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """The recipe to print."""
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """List the recipes and return the exit code."""
    flags = parse(RecipesFlags, args, prog="redline recipes")
    recipes = [find_recipe(one) for one in (recipe_names() if flags.name is None else [flags.name])]
    if flags.json:
        print_json({"recipes": [recipe_facts(recipe) for recipe in recipes]})
    elif flags.name is not None:
        print(recipes[0].text, end="")
    else:
        show_all(recipes, plain=is_plain(plain=flags.plain))
    return DONE


def recipe_facts(recipe: Recipe) -> dict[str, object]:
    """Return a recipe as a plain object."""
    facts = {key: value for key, value in asdict(recipe).items() if key != "text"}
    return {**facts, "game": recipe.game, "algorithm": recipe.algorithm, "text": recipe.text}


def show_all(recipes: Sequence[Recipe], *, plain: bool) -> None:
    """Print what each recipe is for and what it reached."""
    head = ("recipe", "game", "algorithm", "solved", "minutes", "score", "what it is")
    rows = [(one.name, one.game, one.algorithm, *describe_results(one), one.about) for one in recipes]
    print_table(head, rows, plain=plain, numeric=(3, 4, 5))
    print("redline train --recipe NAME uses one; redline recipes NAME prints it")


def describe_results(recipe: Recipe) -> tuple[str, str, str]:
    """Return how many seeds solved the game, and the medians of their minutes and of all scores."""
    results = recipe.results
    if not results:
        return "–", "–", "–"
    solved = [one.minutes for one in results if one.solved]
    minutes = number(median(solved), 1) if solved else "–"
    return f"{len(solved)} of {len(results)}", minutes, number(median(one.score for one in results), 1)
