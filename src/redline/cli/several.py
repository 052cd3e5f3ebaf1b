"""`redline train --seeds 1-5` and `--model all` ask for several runs: that is a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from redline.errors import UserError
from redline.recipes import read_toml
from redline.runs.directory import slug

ALL = "all"
ENV, MODEL = ("--env", "--env.id"), ("--model", "--algo")
USUAL_ENV, USUAL_MODEL = "pong", "dqn"
HELP = ("-h", "--help", "--help-all")
NAME_ONE = "name one algorithm with --model, and one --seed"
MEASURE_ONCE = "for several runs, measure once: redline plan speed --write speed.toml, then --config speed.toml"


def as_fleet(args: Sequence[str]) -> list[str] | None:
    """Return the arguments of `redline fleet start` for those of `redline train`; None if they ask for one run."""
    rest, typed = _split(args)
    config = typed.get("--config")
    model = next((typed[name] for name in MODEL if name in typed), None) or _model_in(config)
    is_all = model is not None and model.lower() == ALL
    if not set(HELP).isdisjoint(args) or not (is_all or "--seeds" in typed):
        return None
    if "--seed" in typed and "--seeds" in typed:
        raise UserError("--seed and --seeds were both given: use one of them")
    if "--auto" in args:
        raise UserError(f"--auto measures for one run that trains; {MEASURE_ONCE}")
    if "--print-config" in args:
        raise UserError(f"--print-config prints the settings of one run: {NAME_ONE}")
    env = next((typed[name] for name in reversed(ENV) if name in typed), None)
    seeds = typed.get("--seeds") or typed.get("--seed")
    found = list(rest)
    if env is not None or not {"--recipe", "--config"} & typed.keys():
        found += ["--games", env or USUAL_ENV]
    if model is not None or not {"--recipe", "--config"} & typed.keys():
        found += ["--model", model or USUAL_MODEL]
    found += [] if seeds is None else ["--seeds", seeds]
    if "--log-dir" in typed:
        name = slug("-".join([env or typed.get("--recipe", USUAL_ENV), model or "", f"seeds-{seeds or 1}"]))
        found += ["--dir", str(Path(typed["--log-dir"]) / name)]
    return found


def _split(args: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Part what says which runs there are from the flags that all of them have."""
    kept, typed, words = [], {}, list(args)
    names = (*ENV, *MODEL, "--seed", "--seeds", "--log-dir")
    while words:
        flag, equals, value = (word := words.pop(0)).partition("=")
        if flag not in (*names, "--config", "--recipe") or not (equals or words):
            kept.append(word)
            continue
        typed[flag] = value if equals else words.pop(0)
        if flag not in names:
            kept += [flag, typed[flag]]
    return kept, typed


def _model_in(config: str | None) -> str | None:
    """Return the algorithm that a file of settings names."""
    if config is None or not config.endswith(".toml"):
        return None
    with suppress(UserError):  # who reads it in earnest says what is wrong
        content = read_toml(Path(config), "config file")
        found = content.get("algo", content.get("model"))
        return found if isinstance(found, str) and found.lower() == ALL else None
    return None
