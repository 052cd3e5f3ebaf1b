"""A browser for the tests of this folder, and the run directories that the report's tests make."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redline.cli.main import DONE, main

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "report")]

from chromium import Chromium, find_chromium  # noqa: E402 - stands beside this file

MakeReport = Callable[..., Path]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find_chromium()
    assert program is not None, "no Chromium: make test-browser installs it, or says what to install"
    with Chromium(program, tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def make_report(tmp_path_factory: pytest.TempPathFactory) -> MakeReport:
    """Make the page of some runs, as a user does."""

    def make(*runs: Path) -> Path:
        page = tmp_path_factory.mktemp("page") / "report.html"
        assert main(["report", *map(str, runs), "--out", str(page), "--plain"]) == DONE
        return page

    return make
