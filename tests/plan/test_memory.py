"""Bytes of every layout, worked by hand, and what is recommended from them."""

import json
from pathlib import Path

import pytest

from redline.plan.memory import MemoryPlan, Room, plan_memory
from redline.replay import ReplayLayout, check_fits, with_budget
from redline.runtime.replay_sizing import Measured
from redline.types import EnvSpec

PONG = EnvSpec("pong", (84, 84), "uint8", stack=4, num_actions=6, frames_per_step=4)
CARTPOLE = EnvSpec("cartpole-v1", (4,), "float32", stack=1, num_actions=2, frames_per_step=1)
GB = 10**9


def measured(codec: str, bytes_per_frame: float) -> Measured:
    return Measured(
        codec=codec,
        num_transitions=1_000,
        num_frames=1_000,
        frames_per_chunk=8,
        bytes_per_frame=bytes_per_frame,
        frames_per_transition=1.0,
        bytes_per_transition=bytes_per_frame + 31.2,
    )


PONG_MEASURED = {
    "raw": measured("raw", 7_056.0),
    "lz4": measured("lz4", 110.0),
    "zstd": measured("zstd", 58.0),
}


def room(*, ram: int = 16 * GB, disk: int = 100 * GB, shm: int | None = 8 * GB) -> Room:
    return Room(
        ram_available_bytes=ram,
        ram_kept_free_bytes=GB // 2,
        shm_free_bytes=shm,
        disk_free_bytes=disk,
        disk_path="fast disk",
    )


def pong(*, capacity: int = 1_000_000, ram: int = 16 * GB, disk: int = 100 * GB) -> MemoryPlan:
    return plan_memory(
        PONG, PONG_MEASURED, env_flags=("--env", "pong"), capacity=capacity, room=room(ram=ram, disk=disk)
    )


@pytest.mark.parametrize(
    ("name", "bytes_per_transition"),
    [
        ("float64_stacks", 2 * 4 * 84 * 84 * 8 + 20),  # 451,604
        ("float32_stacks", 2 * 4 * 84 * 84 * 4 + 20),
        ("uint8_two_stacks", 56_468),
        ("uint8_one_stack", 28_244),
        ("frames_once_raw", 7_088),  # 7,056 + 31.2, rounded up
        ("frames_once_lz4", 142),
        ("frames_once_zstd", 90),
    ],
)
def test_pictures_take(name: str, bytes_per_transition: int) -> None:
    found = pong().to_json()["layouts"][name]
    assert found["bytes_per_transition"] == bytes_per_transition
    assert found["total_bytes"] == 1_000_000 * bytes_per_transition


def test_vectors_have_no_rows_for_pictures() -> None:
    plan = plan_memory(
        CARTPOLE, {"raw": measured("raw", 16.0)}, env_flags=("--env", "CartPole-v1"), capacity=50_000, room=room()
    )
    each = {row.layout.name: row.layout.bytes_per_transition for row in plan.rows}
    # a state of 4 values: 2 · 4 · 8 + 20, 2 · 4 · 4 + 20, 4 · 4 + 20, 16 + 31.2 rounded up
    assert each == {"float64_stacks": 84, "float32_stacks": 52, "float32_one_stack": 36, "frames_once_raw": 48}
    assert plan.recommendation.command == "redline train --env CartPole-v1 --replay.capacity 50_000"


def test_rows_come_largest_first() -> None:
    each = [row.layout.bytes_per_transition for row in pong().rows]
    assert each == sorted(each, reverse=True)


def test_what_fits_is_told_per_place() -> None:
    layouts = pong().to_json()["layouts"]
    # 15.5 GB of RAM, 8 GB of /dev/shm and 100 GB of disk are free
    assert {name: facts["fits"] for name, facts in layouts.items()} == {
        "float64_stacks": "nowhere",
        "float32_stacks": "nowhere",
        "uint8_two_stacks": "disk",
        "uint8_one_stack": "disk",
        "frames_once_raw": "ram",
        "frames_once_lz4": "ram",
        "frames_once_zstd": "ram",
    }
    assert layouts["frames_once_zstd"]["fits_shm"]
    assert not layouts["uint8_one_stack"]["fits_shm"]


def test_the_largest_capacity_has_two_digits_and_fits() -> None:
    layouts = pong().to_json()["layouts"]
    assert layouts["uint8_one_stack"]["largest_capacity_in_ram"] == 540_000  # 15.5 GB / 28,244 = 548,789
    assert layouts["float64_stacks"]["largest_capacity_in_ram"] == 34_000  # 34,322


def test_a_machine_without_dev_shm_has_no_room_there() -> None:
    plan = plan_memory(PONG, PONG_MEASURED, env_flags=(), capacity=1_000, room=room(shm=None))
    assert plan.to_json()["machine"]["shm_free_bytes"] is None
    assert not any(row.fits_shm for row in plan.rows)


def test_zstd_in_ram_is_recommended_where_it_fits() -> None:
    choice = pong().recommendation
    assert (choice.layout, choice.place) == ("frames_once_zstd", "ram")
    assert choice.command == "redline train --env pong --replay.capacity 1_000_000 --replay.codec zstd"


def test_the_disk_is_recommended_where_ram_does_not_suffice() -> None:
    choice = pong(capacity=10_000_000, ram=GB).recommendation
    assert choice.place == "disk"
    assert choice.command == (
        "redline train --env pong --replay.capacity 10_000_000 --replay.codec zstd --replay.path 'fast disk'"
    )


def test_fewer_transitions_are_recommended_where_nothing_else_helps() -> None:
    choice = pong(ram=GB // 2 + 60_000_000, disk=0).recommendation
    assert choice.place == "ram"
    assert 100_000 < choice.capacity < 1_000_000
    assert choice.command is not None
    assert f"--replay.capacity {choice.capacity:_}" in choice.command


def test_nothing_is_recommended_without_memory() -> None:
    choice = pong(ram=GB // 2, disk=0).recommendation
    assert (choice.place, choice.command, choice.capacity) == ("nowhere", None, 0)


@pytest.mark.parametrize("ram", [GB // 2 + 30_000_000, GB, 2 * GB])
@pytest.mark.parametrize("capacity", [100_000, 1_000_000, 5_000_000])
def test_what_is_recommended_is_accepted_by_a_run(ram: int, capacity: int) -> None:
    choice = pong(capacity=capacity, ram=ram).recommendation
    path = Path("fast disk") if choice.place == "disk" else None
    layout = ReplayLayout(
        capacity=choice.capacity, frame_shape=(84, 84), frame_dtype="uint8", stack=4, lanes=8, codec="zstd", path=path
    )
    check_fits(with_budget(layout, 58.0), free_ram_bytes=ram, free_disk_bytes=100 * GB, reserve_bytes=GB // 2)


def test_all_bytes_are_integers_in_json() -> None:
    plan = json.loads(json.dumps(pong().to_json()))
    numbers = [value for facts in plan["layouts"].values() for key, value in facts.items() if key.endswith("bytes")]
    numbers += [value for key, value in plan["machine"].items() if key.endswith("bytes")]
    assert len(numbers) == 2 * 7 + 4
    assert all(type(value) is int for value in numbers)
