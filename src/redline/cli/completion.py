"""`redline completion bash|zsh`: a script that completes commands, flags and names."""

import contextlib
import io
import re
from collections.abc import Sequence
from importlib import import_module

from redline.algorithms.catalog import ALGORITHMS
from redline.cli.main import COMMANDS, DONE
from redline.cli.output import print_json
from redline.cli.parsing import flags_in
from redline.envs.atari_games import atari_games
from redline.errors import UserError
from redline.recipes import recipe_names

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


def run(args: Sequence[str]) -> int:
    """Print the script of a shell and return the exit code."""
    if "--help" in args or "-h" in args:
        print("usage: redline completion bash|zsh\n\n" + "\n".join(PLACES.values()))
        return DONE
    names = [arg for arg in args if arg not in ("--plain", "--json")]
    if len(names) != 1 or names[0] not in HEADS:
        raise UserError(f"completion needs one shell, {' or '.join(HEADS)}: {PLACES['bash']}")
    text = HEADS[names[0]] + script()
    if "--json" in args:
        print_json({"shell": names[0], "script": text})
    else:
        print(text, end="")
    return DONE


def script() -> str:
    """Return the part that both shells share: flags after their command, names after the flags that take them."""
    cases = "\n".join(f'      {name}) words="{" ".join(words_of(name))}" ;;' for name in COMMANDS)
    names = {
        "GAMES": " ".join(atari_games()),
        "ALGORITHMS": " ".join(ALGORITHMS),
        "RECIPES": " ".join(recipe_names()),
        "COMMANDS": " ".join(COMMANDS),
        "CASES": cases,
    }
    return re.sub("|".join(names), lambda found: names[found[0]], SCRIPT)


def words_of(command: str) -> list[str]:
    """Return the subjects of a command, and the flags in its help, in that order."""
    shown, module = io.StringIO(), import_module(f"redline.cli.{command}")
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit, UserError):
        module.run(["--help-all" if command == "train" else "--help"])
    return [*getattr(module, "SUBJECTS", ()), *flags_in(shown.getvalue())]
