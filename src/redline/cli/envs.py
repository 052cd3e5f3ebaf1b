"""`redline envs`: the games and other envs that can be trained on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from redline.cli.main import DONE
from redline.cli.parsing import parse
from redline.cli.tables import is_plain, print_facts
from redline.envs.atari_games import DQN_2015, MACHADO_2018, atari_games
from redline.envs.catalog import load_suite, other_ids, suite_names
from redline.errors import UserError

PROGRAM = "redline envs"


@dataclass(frozen=True)
class EnvsFlags:
    """List what --env takes."""

    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print everything as one JSON object on stdout, and nothing else there."""


def run(args: Sequence[str]) -> int:
    """List the envs and return the exit code."""
    flags = parse(EnvsFlags, args, default=EnvsFlags(), prog=PROGRAM)
    games, others = atari_games(), other_ids()
    suites = {prefix: list_suite(prefix) for prefix in suite_names()}
    if flags.json:
        found = {prefix: {"ids": ids, "error": error} for prefix, (ids, error) in suites.items()}
        print(json.dumps({"schema": 1, "atari": games, "gymnasium": others, "suites": found}))
        return DONE
    facts = [
        ("Atari", ", ".join(games)),
        ("", f"--env pong and --env PongNoFrameskip-v4: {DQN_2015}"),
        ("", f"--env ALE/Pong-v5: {MACHADO_2018}"),
        ("Gymnasium", ", ".join(others)),
        ("", "only those with discrete actions can be trained on"),
        *((prefix, error or ", ".join(ids)) for prefix, (ids, error) in suites.items()),
        ("your own", "--env MODULE:ID imports a module that registers the env; docs/extending.md tells of other ways"),
    ]
    print_facts(facts, plain=is_plain(plain=flags.plain, as_json=False))
    return DONE


def list_suite(prefix: str) -> tuple[list[str], str | None]:
    """Return the ids of a suite that a package brings, or why it can't be loaded."""
    try:
        return [f"{prefix}/{name}" for name in load_suite(prefix).names], None
    except UserError as error:
        return [], str(error)
