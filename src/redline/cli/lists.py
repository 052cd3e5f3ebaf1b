"""The commands that only tell what there is: `redline envs`, `recipes`, `doctor` and `completion`."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import tyro

from redline.cli.main import COMMANDS, DONE, find_command
from redline.cli.output import give, print_facts, print_table
from redline.cli.parsing import Json, Plain, flags_in, parse
from redline.envs.atari_games import DQN_2015, MACHADO_2018, atari_games
from redline.envs.catalog import load_suite, other_ids, suite_names
from redline.errors import UserError
from redline.files import free_bytes
from redline.recipes import Recipe, find_recipe, recipe_names
from redline.runs.host import host_facts, version
from redline.units import number, size


@dataclass(frozen=True)
class EnvsFlags:
    """List what --env takes."""

    plain: Plain = False
    json: Json = False


def run_envs(args: Sequence[str]) -> int:
    flags = parse(EnvsFlags, args, prog="redline envs")
    suites = {prefix: _suite(prefix) for prefix in suite_names()}
    return give({"atari": atari_games(), "gymnasium": other_ids(), "suites": suites}, flags, _show_envs)


def _suite(prefix: str) -> dict[str, Any]:
    """Return the ids of a suite that a package brings, or why it can't be loaded."""
    try:
        return {"ids": [f"{prefix}/{name}" for name in load_suite(prefix).names], "error": None}
    except UserError as error:
        return {"ids": [], "error": str(error)}


def _show_envs(found: Mapping[str, Any], *, plain: bool) -> None:
    facts = [
        ("Atari", ", ".join(found["atari"])),
        ("", f"--env pong and --env PongNoFrameskip-v4: {DQN_2015}"),
        ("", f"--env ALE/Pong-v5: {MACHADO_2018}"),
        ("Gymnasium", ", ".join(found["gymnasium"])),
        ("", "only envs with discrete actions can be trained on"),
        *((prefix, suite["error"] or ", ".join(suite["ids"])) for prefix, suite in found["suites"].items()),
        ("your own", "--env MODULE:ID imports the module that registers the env; docs/extending.md shows other ways"),
    ]
    print_facts(facts, plain=plain)


@dataclass(frozen=True)
class RecipesFlags:
    """List the recipes, or print the file of one: redline recipes pong."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """The recipe to print."""
    plain: Plain = False
    json: Json = False


def run_recipes(args: Sequence[str]) -> int:
    """List settings that are known to work, with what each seed of their record reached; return the exit code."""
    flags = parse(RecipesFlags, args, prog="redline recipes")
    recipes = [find_recipe(one) for one in (recipe_names() if flags.name is None else [flags.name])]

    def show(_: object, *, plain: bool) -> None:
        if flags.name is not None:
            print(recipes[0].text, end="")
            return
        head = ("recipe", "game", "algorithm", "solved", "minutes", "score", "what it is")
        rows = [(one.name, one.game, one.algorithm, *_results(one), one.about) for one in recipes]
        print_table(head, rows, plain=plain, numeric=(3, 4, 5))
        print("redline train --recipe NAME uses one; redline recipes NAME prints it")

    facts = [{**asdict(one), "game": one.game, "algorithm": one.algorithm} for one in recipes]
    return give({"recipes": facts}, flags, show)


def _results(recipe: Recipe) -> tuple[str, str, str]:
    """Return how many seeds solved the game, and the medians of their minutes and of all scores.

    A recipe without a target solves nothing: its minutes are those of whole runs.
    """
    results = recipe.results
    if not results:
        return "–", "–", "–"
    score = number(median(one.score for one in results), 1)
    if all(one.solved is None for one in results):
        return "–", number(median(one.minutes for one in results), 1), score
    solved = [one.minutes for one in results if one.solved]
    return f"{len(solved)} of {len(results)}", number(median(solved), 1) if solved else "–", score


OPTIONAL = ("tensorboard", "optuna", "starlette", "uvicorn", "av", "pygame-ce", "nvidia-ml-py", "stable-baselines3")
ENVIRONMENT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class DoctorFlags:
    """Print what a bug report needs. Nothing is changed, and nothing is sent anywhere."""

    plain: Plain = False
    json: Json = False


def run_doctor(args: Sequence[str]) -> int:
    """Print the machine, the versions, and what else decides how Redline runs here; return the exit code."""
    import torch  # slow to load

    flags = parse(DoctorFlags, args, prog="redline doctor")
    facts = {key: value for key, value in host_facts().items() if key != "command"}
    found = {
        **facts,
        "extras": {name: version(name) for name in OPTIONAL},
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpus": [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())],
        "memory_free_bytes": psutil.virtual_memory().available,
        "disk_free_bytes": free_bytes(Path.cwd()),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }
    return give(found, flags, _show_machine)


def _show_machine(found: Mapping[str, Any], *, plain: bool) -> None:
    host = found["host"]
    facts = [
        ("system", host["system"]),
        ("processor", f"{host['cpu_model']}, {host['usable_cores']} of {host['logical_cores']} cores usable"),
        ("torch's vectors", found["cpu_capability"]),
        ("memory", f"{size(host['memory_bytes'])}, {size(found['memory_free_bytes'])} free"),
        ("disk", f"{size(found['disk_free_bytes'])} free here"),
        ("GPUs", ", ".join(found["gpus"]) or "none that torch can use"),
        ("commit", found["commit"] or "an installed package"),
        ("versions", ", ".join(f"{name} {number}" for name, number in found["versions"].items() if number)),
        ("extras", ", ".join(f"{name} {number or '–'}" for name, number in found["extras"].items())),
        ("environment", ", ".join(f"{name}={value}" for name, value in found["environment"].items()) or "nothing set"),
    ]
    print_facts(facts, plain=plain)


# how the script of each shell begins, and where to put it
HEADS = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}
PLACES = {
    "bash": "redline completion bash > ~/.local/share/bash-completion/completions/redline",
    "zsh": "redline completion zsh >> ~/.zshrc",
}
SCRIPT = """\
_redline() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words
  case "$before" in
    --env|--env.id) words="GAMES" ;;
    --model|--algo) words="all ALGORITHMS" ;;
    --recipe) words="RECIPES" ;;
    redline) words="COMMANDS" ;;
    *) case "${COMP_WORDS[1]}" in
CASES
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _redline redline
"""


def run_completion(args: Sequence[str]) -> int:
    """Print the script that completes commands, flags and names in a shell, and return the exit code."""
    from redline.algorithms.catalog import ALGORITHMS  # loads torch

    if "--help" in args or "-h" in args:
        print("usage: redline completion bash|zsh\n\n" + "\n".join(PLACES.values()))
        return DONE
    names = [arg for arg in args if arg not in ("--plain", "--json")]
    if len(names) != 1 or names[0] not in HEADS:
        raise UserError(f"completion needs one shell, {' or '.join(HEADS)}: {PLACES['bash']}")
    words = {
        "GAMES": " ".join(atari_games()),
        "ALGORITHMS": " ".join(ALGORITHMS),
        "RECIPES": " ".join(recipe_names()),
        "COMMANDS": " ".join(COMMANDS),
        "CASES": "\n".join(f'      {name}) words="{" ".join(_words_of(name))}" ;;' for name in COMMANDS),
    }
    text = HEADS[names[0]] + re.sub("|".join(words), lambda found: words[found[0]], SCRIPT)
    flags = EnvsFlags(json="--json" in args)
    return give({"shell": names[0], "script": text}, flags, lambda _, plain: print(text, end=""))


def _words_of(command: str) -> list[str]:
    """Return the subjects of a command, and the flags in its help, in that order."""
    shown, run = io.StringIO(), find_command(command)
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit, UserError):
        run(["--help-all" if command == "train" else "--help"])
    return [*getattr(sys.modules[run.__module__], "SUBJECTS", ()), *flags_in(shown.getvalue())]
