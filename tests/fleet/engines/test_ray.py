"""A fleet's side of a Ray cluster, without Ray: the token, what is refused, and what happens when a driver is lost."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import DONE, FAILED, main
from redline.errors import UserError
from redline.files import make_folder
from redline.fleet.engines import open_engine, ray, ray_cluster, ray_node
from redline.fleet.engines.ray import RayEngine
from redline.fleet.engines.ray_cluster import Cluster, DriverProcess, Link, check_address, check_ray, first_word
from redline.fleet.engines.ray_token import find_token
from redline.fleet.lease import Lease, Watcher
from redline.fleet.listing import Wishes

ALPHA = {"node": "10.0.0.1", "host": "alpha", "ray_cores": 4, "problem": ""}
BETA = {"node": "10.0.0.2", "host": "beta", "ray_cores": 2, "problem": ""}
BLIND = {**BETA, "problem": "does not see /fleet"}


class Driver:
    """Stands for the process that talks to Ray."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.said = list(events)
        self.orders: list[dict[str, Any]] = []
        self.exit_code: int | None = None
        self.begun_s = time.monotonic()
        self.heard_s: float | None = self.begun_s
        self.is_closed = False

    def events(self) -> list[dict[str, Any]]:
        said, self.said = self.said, []
        return said

    def order(self, **facts: Any) -> None:
        self.orders.append(facts)

    def close(self, seconds: float = 0.0) -> None:
        self.is_closed = True


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A token file, and no other trace of Ray in the environment."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "auth_token"
    path.write_text("secret\n")
    path.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    return path


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RayEngine, list[Driver]]:
    """An engine with two nodes, and its drivers: the next ones are taken from the end."""
    drivers = [Driver()]
    monkeypatch.setattr(ray, "RETRY_S", 0.0)
    monkeypatch.setattr(Link, "open", lambda link: drivers[-1])
    link = Link("10.0.0.1:6379", tmp_path, {})
    return RayEngine(link, drivers[0], Cluster([ALPHA, BETA]), []), drivers  # type: ignore[arg-type]


def test_no_other_engine_needs_ray(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from redline.fleet.engines import open_engine;"
        "from redline.fleet.listing import Wishes; open_engine(Path(sys.argv[1]), Wishes());"
        "import redline.fleet.engines.slurm, redline.fleet.engines.ray; sys.exit('ray' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_slurm_is_not_supervised(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="submit the script"):
        open_engine(tmp_path, Wishes(engine="slurm"))


def test_token_that_others_can_read_becomes_private(token: Path) -> None:
    token.chmod(0o644)
    found = find_token()
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert "others could read" in found.note
    assert found.variables == {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    assert find_token().note == ""


def _remove(token: Path) -> None:
    token.unlink()


def _empty(token: Path) -> None:
    token.write_text(" \n")


def _link(token: Path) -> None:
    token.rename(token.with_name("elsewhere"))
    token.symlink_to("elsewhere")


def _give_away(token: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(token, 12345, -1)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_remove, "there is no token"),
        (_empty, "is empty"),
        (_link, "it is a link"),
        (_give_away, "belongs to another user"),
    ],
)
def test_token_that_cannot_be_used_safely_is_refused(token: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(token)
    with pytest.raises(UserError, match=message):
        find_token()


def test_cluster_without_token_authentication_is_refused(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(UserError, match="anybody's code"):
        find_token()


def test_token_of_the_environment_needs_no_file(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token.unlink()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert find_token().variables == {"RAY_AUTH_MODE": "token"}


@pytest.mark.parametrize("address", ["", "alpha", "alpha:", ":6379", "alpha:99999", "alpha:6379 x", "al\x1bpha:6379"])
def test_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="use HOST:PORT"):
        check_address(address)


def test_missing_or_other_ray_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    for version, message in ((missing, "needs Ray: pip install"), (lambda name: "2.61.0", "ray 2.61.0 is installed")):
        monkeypatch.setattr(ray_cluster, "version", version)
        with pytest.raises(UserError, match=message):
            check_ray()


def test_nodes_that_come_and_go_are_told_and_counted(engine: tuple[RayEngine, list[Driver]]) -> None:
    fleet, (driver,) = engine
    assert fleet.cores() == 6
    driver.said = [{"nodes": [ALPHA]}]
    assert fleet.poll() == ["the node beta (10.0.0.2) is lost"]
    assert fleet.cores() == 4
    driver.said = [{"nodes": [ALPHA, BLIND]}]
    assert fleet.poll() == ["the node beta (10.0.0.2) is left out: it does not see /fleet"]
    assert fleet.cores() == 4
    driver.said = [{"nodes": [ALPHA, BETA]}]
    assert fleet.poll() == ["the node beta (10.0.0.2) is there"]
    assert fleet.cores() == 6


def test_lost_driver_is_replaced_and_gets_the_orders_that_nobody_has_carried_out(
    engine: tuple[RayEngine, list[Driver]], tmp_path: Path
) -> None:
    fleet, drivers = engine
    for slot in ("begun", "lost"):
        fleet.place(slot, 1)
    Lease.take(tmp_path, "begun", watcher=Watcher(tmp_path))
    drivers[0].exit_code = 1  # as Ray ends it, 60 s after the head
    assert fleet.poll() == ["the Ray cluster at 10.0.0.1:6379 does not answer: runs go on, and others wait for it"]
    assert fleet.cores() == 0
    assert drivers[0].is_closed
    drivers.append(Driver({"refused": "no head"}))
    drivers[1].exit_code = 1
    assert (fleet.poll(), fleet.poll()) == ([], ["no head"])
    drivers.append(Driver({"nodes": [ALPHA]}))
    assert fleet.poll() == []
    assert drivers[2].orders == [{"place": "lost", "threads": 1}]
    assert fleet.poll()[0] == "the Ray cluster at 10.0.0.1:6379 answers again: 4 cores"


def test_node_that_may_be_lost_is_left_out_and_one_that_is_wrong_refuses_the_cluster(
    token: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = {**BETA, "problem": ray_node.UNANSWERED}
    drivers = [Driver(), Driver(), Driver()]
    clusters = [Cluster([ALPHA, silent]), Cluster([silent]), Cluster([silent, {**ALPHA, "problem": "has ray 2.1"}])]
    monkeypatch.setattr(Link, "open", lambda link: drivers.pop())
    monkeypatch.setattr(ray, "check_ray", lambda: None)
    monkeypatch.setattr(ray, "first_word", lambda driver, address: clusters.pop(0))
    wishes = Wishes(engine="ray", address="alpha:6379")
    engine = open_engine(tmp_path, wishes)
    assert engine.poll() == ["the node beta (10.0.0.2) is left out: it does not answer"]
    assert engine.cores() == 4
    for message in ("does not answer", "alpha .* has ray 2.1"):
        with pytest.raises(UserError, match=message):
            open_engine(tmp_path, wishes)


def test_driver_that_says_nothing_any_more_is_given_up(engine: tuple[RayEngine, list[Driver]]) -> None:
    fleet, (driver,) = engine
    driver.heard_s = time.monotonic() - ray.SILENT_S - 1
    assert "does not answer" in fleet.poll()[0]
    assert driver.is_closed


def test_driver_is_a_process_that_speaks_lines_and_ends_with_its_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "driver"  # arguments: -m MODULE ADDRESS FOLDER DESCRIPTOR
    program.write_text('#!/bin/bash\necho \'{"nodes": []}\' >&$5\nread order\necho "$order" >&$5\nexec sleep 60\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    driver: DriverProcess = Link("alpha:6379", tmp_path, {}).open()
    assert first_word(driver, "alpha:6379").problems == [
        "its nodes have no cores: use ray start --num-cpus=N on one of them"
    ]
    driver.order(place="slot", threads=2)
    driver.wait(10)
    assert driver.events() == [{"place": "slot", "threads": 2}]
    assert driver.exit_code is None
    driver.close()
    assert driver.exit_code is not None


def test_driver_that_ends_without_a_word_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    driver = Link("alpha:6379", None, {}).open()
    assert "broke" in first_word(driver, "alpha:6379").refused
    driver.close()


def test_node_proves_that_it_sees_the_folder_and_says_so_if_not(tmp_path: Path) -> None:
    (tmp_path / "probe").write_text("nonce")
    told = json.loads(ray_node.describe(str(tmp_path), "probe", "nonce"))
    assert told["folder"] == ""
    assert (tmp_path / told["answer"]).read_text() == "nonce"
    for name, nonce in (("probe", "another"), ("missing", "nonce")):
        assert json.loads(ray_node.describe(str(tmp_path), name, nonce))["folder"] == f"does not see {tmp_path}"


def test_node_with_another_version_without_token_or_with_another_folder_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "probe").write_text("nonce")

    def problem(home: Path, **changed: Any) -> str:
        facts = json.loads(ray_node.describe(str(home), "probe", "nonce")) | changed
        return ray_node.problem_of(facts, here, "nonce")

    assert problem(here) == ""
    assert [path.name for path in here.iterdir()] == ["probe"]
    assert problem(there) == f"writes into another folder than {here}"
    assert "has torch 1.0, this machine" in problem(here, versions=ray_node.versions() | {"torch": "1.0"})
    assert problem(here, auth_mode="") == "was started without RAY_AUTH_MODE=token"
    assert problem(here, folder="does not see it") == "does not see it"


def test_runner_has_a_session_of_its_own_and_nothing_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"echo $RAY_JOB_ID-$OMP_NUM_THREADS-$KEPT >{tmp_path}/said; ps -o sid= -p $$ >{tmp_path}/session; echo out"
    monkeypatch.setattr(ray_node, "command_of", lambda folder, slot, threads: ["/bin/sh", "-c", script])
    monkeypatch.setattr(ray_node, "POLL_S", 0.01)
    for name, value in (("RAY_JOB_ID", "1"), ("OMP_NUM_THREADS", "1"), ("KEPT", "kept")):
        monkeypatch.setenv(name, value)
    make_folder(tmp_path / "logs")
    ray_node.train(str(tmp_path), "slot", 1)
    assert (tmp_path / "said").read_text() == "--kept\n"
    assert int((tmp_path / "session").read_text()) != os.getsid(0)
    assert (tmp_path / "logs" / "slot.log").read_text() == "out\n"


def test_cluster_check_tells_of_every_node(
    token: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node = {**ALPHA, "versions": {"redline": "0.1.0", "ray": "2.60.0"}, "memory_bytes": 8e9, "auth_mode": "token"}
    evil = {**BLIND, "host": "be\x1b[2Jta", "folder": "does not see /fleet"}
    found = [Cluster([node]), Cluster([node, evil]), Cluster(refused="no Ray head answers")]
    monkeypatch.setattr("redline.cli.cluster.inspect", lambda address, folder: found.pop(0))
    command = ["cluster", "check", "--engine.address", "alpha:6379", "--dir", str(tmp_path)]
    assert main(command) == DONE
    assert "alpha:6379 can train a fleet: 4 cores on 1 nodes" in capsys.readouterr().out
    assert main(command) == FAILED
    out = capsys.readouterr().out
    assert "does not see /fleet" in out
    assert "\x1b" not in out
    assert main([*command, "--json"]) == FAILED
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], facts["problems"]) == (False, ["no Ray head answers"])
