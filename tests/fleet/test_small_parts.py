"""The small parts of a supervision: where a folder lies, runners that never begin, time left, runs that hang."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from redline.fleet import place
from redline.fleet.engines.local import LocalEngine, LocalProcess
from redline.fleet.hung import HUNG_S, QUIET_S, HungRuns, end
from redline.fleet.lease import Holder
from redline.fleet.listing import Slot
from redline.fleet.place import here, is_alive, is_shared, start_ticks
from redline.fleet.process_table import ProcessTable
from redline.fleet.slots import SlotStatus
from redline.fleet.starts import MOST_STARTS, PAUSE_S, START_S, Starts
from redline.fleet.time_left import time_left
from redline.monitor.processes import ProcessStat
from waiting import wait_for

SLOT = Slot("pong-dqn-s1", "pong", "dqn", 1, {})
MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:30 / /home rw - nfs4 server:/home rw
24 23 254:1 / /home/own\040disk rw - xfs /dev/vdb rw
25 22 0:31 / /mnt rw - ext4 /dev/vdc rw
26 22 0:32 / /mnt rw - fuse.sshfs host:/ rw
27 22 0:33 / /host rw - 9p share rw
29 22 0:35 / /mnt/диск rw - cifs //server/share rw
28 22 0:34 / /scratch rw shared:5 master:1 - tmpfs tmpfs rw
broken line
""".strip()


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/", False),
        ("/homes", False),
        ("/home/user/fleet", True),
        ("/home/own disk/fleet", False),
        ("/mnt/fleet", True),
        ("/host", True),
        ("/mnt/диск/fleet", True),
        ("/scratch/диск", False),
    ],
)
def test_other_machines_see_what_is_not_on_a_disk_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, expected: bool
) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(place, "MOUNTS", tmp_path / "mounts")
    assert is_shared(Path(folder)) is expected


def test_what_can_not_be_read_counts_as_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "MOUNTS", tmp_path / "missing")
    assert is_shared(tmp_path)


def test_a_process_is_known_by_its_number_and_its_start() -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    assert is_alive(os.getpid(), ticks)
    assert not is_alive(os.getpid(), ticks + 1)
    assert not is_alive(-1, ticks)
    assert start_ticks(2**40) is None


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[LocalProcess]:
    process = LocalProcess([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")
    yield process
    process.kill()
    process.wait(10.0)


def holder_of(pid: int, *, epoch: int = 1) -> Holder:
    return Holder(SLOT.name, epoch, here(), pid, 0.0, process_start_ticks=start_ticks(pid) or 0)


def test_a_run_that_does_nothing_for_long_is_found_and_one_that_was_stopped_is_not(sleeper: LocalProcess) -> None:
    now_s = 0.0
    hung = HungRuns(clock=lambda: now_s)
    status = SlotStatus(SLOT, "running", 1, steps=100, holder=holder_of(sleeper.pid))
    looks = []
    for _ in range(int((HUNG_S + 2 * QUIET_S) / 10)):
        looks.append(hung.find([status]))
        now_s += 10.0
    begun = next(number for number, found in enumerate(looks) if found)
    assert HUNG_S + QUIET_S <= begun * 10.0 <= HUNG_S + QUIET_S + 20.0
    os.kill(sleeper.pid, signal.SIGSTOP)
    wait_for(lambda: not hung.find([status]), "it counts as stopped")
    now_s += HUNG_S * 10
    assert not hung.find([status])
    os.kill(sleeper.pid, signal.SIGCONT)


def test_a_run_that_takes_steps_or_computes_does_not_hang() -> None:
    now_s, share = 0.0, 0.2  # of a core

    def look() -> ProcessTable:
        return ProcessTable({7: ProcessStat(7, "python", "S", 1, 7, 1, now_s * share, 0.0, 1, 1_000)})

    hung = HungRuns(clock=lambda: now_s, look_at_processes=look)
    at_work = SlotStatus(SLOT, "running", 1, steps=5, holder=Holder(SLOT.name, 1, here(), 7, 0.0))
    for _ in range(200):
        now_s += 10.0
        assert not hung.find([at_work])
    share = 0.0
    for steps in range(200):
        now_s += 10.0
        assert not hung.find([replace(at_work, steps=steps)])


def test_a_run_that_hangs_is_ended_with_its_processes_and_a_stranger_of_its_number_is_not(
    sleeper: LocalProcess,
) -> None:
    holder = holder_of(sleeper.pid)
    end(Holder(SLOT.name, 1, here(), sleeper.pid, 0.0, process_start_ticks=holder.process_start_ticks + 1))
    assert sleeper.exit_code is None
    end(holder)
    wait_for(lambda: sleeper.exit_code == -signal.SIGKILL, "it is killed")


def status(state: str, name: str = SLOT.name, **facts: object) -> SlotStatus:
    slot = Slot(name, "pong", "dqn", 1, {})
    return SlotStatus(slot, state, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statuses", "concurrency", "expected"),
    [
        ([status("running", time_s=60.0, remaining_s=40.0)], 2, 40.0),
        ([status("running", time_s=60.0, remaining_s=40.0), status("waiting", "x-s2")], 1, 140.0),
        ([status("running", time_s=60.0, remaining_s=40.0), status("waiting", "x-s2")], 2, 100.0),
        ([status("done", time_s=80.0), *(status("waiting", f"x-s{n}") for n in (2, 3, 4))], 2, 160.0),
        ([status("waiting")], 1, None),
        ([status("running", time_s=1.0, remaining_s=9_999.0)], 1, None),  # it has hardly begun
        ([status("done", time_s=80.0), status("given up", "x-s2")], 1, None),
    ],
)
def test_time_left(statuses: list[SlotStatus], concurrency: int, expected: float | None) -> None:
    assert time_left(statuses, concurrency) == expected


def test_a_limit_in_minutes_tells_the_time_left() -> None:
    slot = Slot("x-s1", "pong", "dqn", 1, {"max-minutes": 2})
    assert time_left([SlotStatus(slot, "waiting")] * 3, 2) == 240.0


class ToldEngine(LocalEngine):
    """An engine that knows how runners ended."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.code: int | None = None

    def exit_code(self, slot: str) -> int | None:
        return self.code


def test_a_runner_has_a_while_to_take_its_lease_and_three_tries(tmp_path: Path) -> None:
    now_s = 1_000.0
    starts = Starts(tmp_path, ToldEngine(tmp_path), clock=lambda: now_s)
    waiting = SlotStatus(SLOT, "waiting")
    for number in range(1, MOST_STARTS + 1):
        assert starts.may_start(SLOT.name)
        starts.add(waiting)
        starts.look()
        assert (starts.seen_with(waiting).state, starts.seen_with(waiting).reason) == ("running", "starting")
        now_s += START_S
        found = starts.seen_with(waiting)
        assert found.state == ("given up" if number == MOST_STARTS else "waiting")
        assert found.reason.startswith("it did not begin within 120 s: see ")
        assert not starts.may_start(SLOT.name)
        now_s += PAUSE_S


def test_a_lease_ends_the_wait_and_the_count(tmp_path: Path) -> None:
    engine = ToldEngine(tmp_path)
    starts = Starts(tmp_path, engine)
    starts.add(SlotStatus(SLOT, "waiting"))
    running = SlotStatus(SLOT, "running", 1, holder=holder_of(os.getpid()))
    assert starts.seen_with(running) is running
    assert not starts
    starts.add(running)
    engine.code = 1  # the next one ended before it took the lease
    starts.look()
    assert starts.seen_with(replace(running, state="waiting")).reason.startswith("its process ended with exit code 1")
    starts.add(running)
    starts.fail(SLOT.name, "no more processes are allowed")
    assert starts.seen_with(replace(running, state="waiting")).reason == "no more processes are allowed"


def test_an_engine_starts_runners_that_outlive_it_and_knows_how_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", "import os; print('said', os.getsid(0) == os.getpid()); raise SystemExit(7)"]
    monkeypatch.setattr("redline.fleet.engines.local.command_of", lambda *_: command)
    engine = LocalEngine(tmp_path)
    for _ in range(2):
        engine.place("slot", 1)
        wait_for(lambda: engine.exit_code("slot") == 7, "it ended")
    assert engine.exit_code("other") is None
    assert (tmp_path / "logs" / "slot.log").read_text() == "said True\n" * 2
