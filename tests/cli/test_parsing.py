"""A command line becomes a dataclass; each mistake becomes one line with a remedy."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
import tyro

from redline.cli.parsing import Json, Run, flags_in, help_text, parse
from redline.errors import UserError


@dataclass(frozen=True)
class Inner:
    """Settings without a prefix."""

    size: int | None = None
    """How large."""


@dataclass(frozen=True)
class Flags:
    """A command on a run."""

    run: Run
    inner: Annotated[Inner, tyro.conf.arg(name="")] = field(default_factory=Inner)
    """Settings."""
    kind: Literal["steps", "minutes"] = "steps"
    """Kind of limit."""
    max_steps: int = 5
    """Most steps."""
    json: Json = False


def parsed(*args: str) -> Flags:
    return parse(Flags, args, prog="redline look")


@pytest.mark.parametrize(
    "args",
    [
        ("last", "--max-steps", "7", "--json"),
        ("--max-steps", "7", "--json", "last"),
        ("--json", "last", "--max_steps=7"),
    ],
)
def test_the_run_may_stand_anywhere(args: tuple[str, ...]) -> None:
    assert parsed(*args) == Flags(run="last", max_steps=7, json=True)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ((), "look needs a run directory, a folder of runs (its newest) or last: redline look last"),
        (("--json",), "look needs a run directory, a folder of runs (its newest) or last: redline look last"),
        (("last", "more"), "'more' is one argument too many: see redline look --help"),
        (("last", "--max-stps", "3"), "unknown option --max-stps: did you mean --max-steps?"),
        (("--max-stps", "3", "last"), "unknown option --max-stps: did you mean --max-steps?"),
        (("last", "--max-stps=3"), "unknown option --max-stps: did you mean --max-steps?"),
        (("last", "--zzzzz"), "unknown option --zzzzz: see redline look --help"),
        (("last", "--siz", "3"), "unknown option --siz: did you mean --size?"),
        (("last", "--kind", "hours"), "--kind is 'hours': use steps or minutes"),
        (("last", "--max-steps", "all"), "--max-steps is 'all', but it takes a whole number: see redline look --help"),
        (("last", "--max_steps=many"), "--max-steps is 'many', but it takes a whole number: see redline look --help"),
        (("last", "--size", "1GB"), "--size is '1GB', but it takes a whole number: see redline look --help"),
        (("last", "--max-steps"), "--max-steps needs a value: see redline look --help"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(
    args: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError) as error:
        parsed(*args)
    assert str(error.value) == line
    assert capsys.readouterr() == ("", "")


def test_help_shows_the_run_and_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_text(Flags, prog="redline look")
    assert "RUN" in text
    assert {"--size", "--kind", "--max-steps", "--json"} <= set(flags_in(text))
    with pytest.raises(SystemExit) as stop:
        parsed("--help")
    assert stop.value.code == 0
    assert "A command on a run." in capsys.readouterr().out
