"""The walk of docs/adding-an-algorithm.md: its file, and nothing else, is a new algorithm."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import redline
from one_process import Redline, redline_in

PAGE = Path(__file__).parents[2] / "docs" / "adding-an-algorithm.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redline]:
    """Runs commands of a copy of the package with the file of the page in it."""
    folder = tmp_path_factory.mktemp("copy")
    copied = folder / "redline"
    shutil.copytree(Path(redline.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    found = re.search(r"<!-- file: (\w+\.py) -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (copied / "algorithms" / "named" / found[1]).write_text(found[2], encoding="utf-8")
    with redline_in(folder, environ={**os.environ, "PYTHONPATH": str(folder)}) as redline_of_the_copy:
        yield redline_of_the_copy


def test_the_new_file_trains_resumes_and_is_listed(run: Redline, tmp_path: Path) -> None:
    limits = ("--env", "CartPole-v1", "--max-steps", 1_600, "--log-dir", tmp_path, "--json")
    done = run("train", "--algo", "mellow-dqn", "--bootstrap.omega", 10, *limits)
    assert done.code == 0, done.err
    trained = json.loads(done.out)
    assert trained["updates"] > 0
    settings = json.loads((Path(trained["run"]) / "run.json").read_text())["config"]
    assert settings["bootstrap"] == {"name": "mellowmax", "omega": 10.0}
    resumed = run("resume", trained["run"], "--max-steps", 1_800, "--json")
    assert json.loads(resumed.out)["steps"] == 1_800
    listed = json.loads(run("algos", "--json").out)
    assert "mellow-dqn" in json.dumps(listed)


def test_its_part_fits_other_algorithms(run: Redline, tmp_path: Path) -> None:
    flags = ("--algo", "dueling-dqn", "--bootstrap", "mellowmax", "--env", "CartPole-v1", "--max-steps", 1_200)
    done = run("train", *flags, "--log-dir", tmp_path, "--json")
    assert done.code == 0, done.err


def test_its_settings_are_checked(run: Redline, tmp_path: Path) -> None:
    done = run("train", "--algo", "mellow-dqn", "--bootstrap.omega", 0, "--log-dir", tmp_path)
    assert done.code == 2
    assert "bootstrap.omega is 0.0" in done.err


def test_the_page_names_every_part() -> None:
    from redline.algorithms.catalog import OWN_PARTS, part_name

    text = PAGE.read_text(encoding="utf-8")
    names = [part_name(part) for parts in OWN_PARTS.values() for part in parts]
    assert [name for name in names if f"`{name}`" not in text] == []
