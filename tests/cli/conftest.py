"""What the tests of all commands share."""

from collections.abc import Callable, Sequence

import pytest

from redline.cli.main import BAD_INPUT, main

Refusal = Callable[[Sequence[str], str], None]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Run a command; check that it says this in one line, prints nothing else, and exits with code 2."""

    def check(args: Sequence[str], message: str) -> None:
        capsys.readouterr()
        assert main(list(args)) == BAD_INPUT
        out, err = capsys.readouterr()
        assert message in err
        assert err.startswith("redline: ")
        assert err.count("\n") == 1
        assert out == ""

    return check
