"""A fleet on a Ray cluster whose nodes are lost, whose head is lost, and that must not be used."""

import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fleet_truth import check_fleet
from ray_cluster import Network, RayNode, make_token, skip_without_ray

from redline.cli.main import BAD_INPUT, DONE, FAILED
from redline.fleet.lease import Holder, read_holder
from waiting import wait_for

STEPS, MORE_STEPS, LONG_STEPS = 20_000, 30_000, 80_000
SLOTS = [f"cartpole-v1-ppo-s{seed}" for seed in range(1, 7)]
LIST = ("--games", "CartPole-v1", "--model", "ppo", "--seeds", "1-6")
RUNS = ("--checkpoint-minutes", 0.05, "--stagger-s", 1, "--plain")
CORES = 6  # that each node claims to have: one node takes all runs

pytestmark = pytest.mark.slow


class Fleet:
    """A fleet under supervision, started on a node of the cluster."""

    def __init__(self, home: Path, node: RayNode, steps: int) -> None:
        self.folder = home / "fleet"
        self.log = home / "supervisor.log"
        self._program = node.machine.start(
            *(sys.executable, "-m", "redline.cli.main", "fleet", "start", *LIST, *RUNS),
            *("--max-steps", steps, "--engine", "ray", "--engine.address", node.cluster, "--dir", self.folder),
            log=self.log,
            variables=node.variables,
        )

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def holders(self) -> dict[str, Holder]:
        found = {slot: read_holder(self.folder, slot) for slot in SLOTS}
        return {slot: holder for slot, holder in found.items() if holder is not None}

    def running_on(self, host: str) -> dict[str, Holder]:
        return {
            slot: holder
            for slot, holder in self.holders().items()
            if holder.place.host == host and holder.state == "running" and holder.steps > 0
        }

    def check_alive(self) -> bool:
        assert self._program.poll() is None, self.said
        return True

    def kill_supervisor(self) -> None:
        """End the supervisor alone by SIGKILL: it is a child of the program that entered the namespaces, or is that."""
        for process in (psutil.Process(self._program.pid), *psutil.Process(self._program.pid).children()):
            process.kill()
        self._program.wait(timeout=60)

    def wait(self, timeout_s: float) -> None:
        try:
            assert self._program.wait(timeout_s) == DONE, self.said
        except subprocess.TimeoutExpired:
            raise AssertionError(self.said) from None


def test_runs_of_a_node_that_is_killed_go_on_at_another_within_a_minute(tmp_path: Path) -> None:
    skip_without_ray()
    token = make_token(tmp_path / "token")
    with Network(tmp_path) as network:
        alpha = RayNode(network, "alpha", cores=CORES, token=token).start()
        beta = RayNode(network, "beta", cores=CORES, token=token, head=alpha).start()
        fleet = Fleet(tmp_path, alpha, STEPS)
        wait_for(lambda: fleet.check_alive() and len(fleet.running_on("beta")) == 3, "three runs train on beta")
        lost = fleet.running_on("beta")
        assert len(fleet.running_on("alpha")) == 3
        beta.machine.kill()
        took_s = wait_for(
            lambda: all(now.epoch > lost[slot].epoch for slot, now in fleet.holders().items() if slot in lost),
            "the runs of beta go on",
        )
        assert took_s < 60
        assert {holder.place.host for holder in fleet.holders().values()} == {"alpha"}
        fleet.wait(300)
    attempts = check_fleet(fleet.folder, slots=SLOTS, max_steps=STEPS)
    assert attempts == {slot: 2 if slot in lost else 1 for slot in SLOTS}
    assert re.search(r"the node beta \(10\.77\.0\.2\) is lost", fleet.said)


def test_runs_outlive_the_head_and_those_that_wait_begin_when_it_is_back(tmp_path: Path) -> None:
    skip_without_ray()
    token = make_token(tmp_path / "token")
    with Network(tmp_path) as network:
        alpha = RayNode(network, "alpha", cores=2, token=token).start()
        beta = RayNode(network, "beta", cores=2, token=token, head=alpha).start()
        fleet = Fleet(tmp_path, alpha, LONG_STEPS)
        wait_for(
            lambda: fleet.check_alive() and len({**fleet.running_on("alpha"), **fleet.running_on("beta")}) == 4,
            "four runs train",
        )
        before = fleet.holders()
        assert len(before) == 4
        alpha.kill_ray()
        wait_for(lambda: "does not answer: runs go on" in fleet.said, "the loss of the head is noticed")
        beta.kill_ray()  # as somebody does who starts the cluster again
        alpha.start()
        beta.start()
        took_s = wait_for(lambda: len(fleet.holders()) == len(SLOTS), "the runs that waited begin")
        assert {slot: fleet.holders()[slot].epoch for slot in before} == dict.fromkeys(before, 1)  # none began again
        assert took_s < 120
        fleet.wait(400)
    assert check_fleet(fleet.folder, slots=SLOTS, max_steps=LONG_STEPS) == dict.fromkeys(SLOTS, 1)


def test_runs_outlive_their_supervisor_and_another_machine_supervises_them(tmp_path: Path) -> None:
    skip_without_ray()
    token = make_token(tmp_path / "token")
    with Network(tmp_path) as network:
        alpha = RayNode(network, "alpha", cores=3, token=token).start()
        beta = RayNode(network, "beta", cores=3, token=token, head=alpha).start()
        fleet = Fleet(tmp_path, alpha, MORE_STEPS)
        wait_for(lambda: fleet.check_alive() and len(fleet.running_on("beta")) == 3, "three runs train on beta")
        fleet.kill_supervisor()
        resumed = beta.redline("fleet", "resume", fleet.folder, "--plain")
        assert resumed.returncode == DONE, resumed.stdout + resumed.stderr
    assert check_fleet(fleet.folder, slots=SLOTS, max_steps=MORE_STEPS) == dict.fromkeys(SLOTS, 1)


def test_cluster_that_must_not_be_used_is_refused(tmp_path: Path) -> None:
    skip_without_ray()
    token = make_token(tmp_path / "token")
    home = tmp_path / "shared"
    home.mkdir()
    with Network(tmp_path) as network:
        alpha = RayNode(network, "alpha", cores=1, token=token).start()
        check = ("cluster", "check", "--engine.address", alpha.cluster, "--dir", home, "--plain")
        start = ("fleet", "start", *LIST, *RUNS, "--engine", "ray", "--engine.address", alpha.cluster)
        good = alpha.redline(*check)
        assert good.returncode == DONE, good.stdout + good.stderr
        assert "can train a fleet: 1 cores on 1 nodes" in good.stdout

        wrong = {"RAY_AUTH_TOKEN_PATH": str(make_token(tmp_path / "wrong"))}
        for args, code in ((check, FAILED), ((*start, "--dir", home / "a"), BAD_INPUT)):
            refused = alpha.redline(*args, **wrong)
            assert refused.returncode == code
            assert "refuses this machine's token" in refused.stdout + refused.stderr

        beta = RayNode(network, "beta", cores=1, token=token, head=alpha)
        beta.machine.do("mount", "-t", "tmpfs", "tmpfs", home)  # the same name, another folder
        beta.start()
        for args, code in ((check, FAILED), ((*start, "--dir", home / "b"), BAD_INPUT)):
            refused = alpha.redline(*args)
            assert refused.returncode == code, refused.stderr
            assert f"beta (10.77.0.2) does not see {home}" in refused.stdout + refused.stderr
        assert not list(home.glob(".redline-*"))

        outsider = RayNode(network, "outsider", cores=1, token=token, head=alpha)  # nobody has started Ray there
        refused = outsider.redline(*check)
        assert refused.returncode == FAILED
        assert f"this machine is no node of the Ray cluster at {alpha.cluster}" in refused.stdout

        gamma = RayNode(network, "gamma", cores=1, token=None).start()
        refused = gamma.redline("cluster", "check", "--engine.address", gamma.cluster, RAY_AUTH_MODE="token", **wrong)
        assert refused.returncode == FAILED
        assert "runs anybody's code" in refused.stdout
