"""`redline envs`: the games and other envs that an agent can be trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

from redline.cli.main import DONE
from redline.cli.output import is_plain, print_facts, print_json
from redline.cli.parsing import Json, Plain, parse
from redline.envs.atari_games import DQN_2015, MACHADO_2018, atari_games
from redline.envs.catalog import load_suite, other_ids, suite_names
from redline.errors import UserError


@dataclass(frozen=True)
class EnvsFlags:
    """List what --env takes."""

    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """List the envs and return the exit code."""
    flags = parse(EnvsFlags, args, prog="redline envs")
    games, others = atari_games(), other_ids()
    suites = {prefix: list_suite(prefix) for prefix in suite_names()}
    if flags.json:
        found = {prefix: {"ids": ids, "error": error} for prefix, (ids, error) in suites.items()}
        print_json({"atari": games, "gymnasium": others, "suites": found})
        return DONE
    facts = [
        ("Atari", ", ".join(games)),
        ("", f"--env pong and --env PongNoFrameskip-v4: {DQN_2015}"),
        ("", f"--env ALE/Pong-v5: {MACHADO_2018}"),
        ("Gymnasium", ", ".join(others)),
        ("", "only envs with discrete actions can be trained on"),
        *((prefix, error or ", ".join(ids)) for prefix, (ids, error) in suites.items()),
        ("your own", "--env MODULE:ID imports the module that registers the env; docs/extending.md shows other ways"),
    ]
    print_facts(facts, plain=is_plain(plain=flags.plain))
    return DONE


def list_suite(prefix: str) -> tuple[list[str], str | None]:
    """Return the ids of a suite that a package brings, or why it can't be loaded."""
    try:
        return [f"{prefix}/{name}" for name in load_suite(prefix).names], None
    except UserError as error:
        return [], str(error)
