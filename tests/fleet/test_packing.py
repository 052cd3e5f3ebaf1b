"""How many runs go side by side, by decision tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redline.fleet.packing import Machine, Needs, NoRoomError, choose, together

GB = 10**9
TWO = Machine(cores=2, memory_bytes=10 * GB, disk_bytes=100 * GB)
RUN = Needs(cores=1.0, memory_bytes=GB, disk_bytes=2 * GB)


@pytest.mark.parametrize(
    ("machine_cores", "cores", "slots", "expected"),
    [
        (2, 0.95, 10, (2, 1)),  # two runs with one thread are faster than one with two
        (2, 1.02, 10, (2, 1)),
        (2, 1.6, 10, (2, 1)),  # one alone leaves a part of a core
        (2, 1.95, 10, (1, 2)),  # one fills both: a second could only wait
        (2, 3.2, 10, (1, 2)),  # several processes
        (2, 0.6, 10, (4, 1)),  # it waits a lot
        (2, 0.95, 1, (1, 2)),
        (8, 1.0, 100, (8, 1)),
        (8, 1.0, 3, (3, 2)),
        (64, 1.3, 100, (47, 1)),
        (1, 1.0, 5, (1, 1)),
    ],
)
def test_as_many_runs_as_fill_the_cores(
    machine_cores: int, cores: float, slots: int, expected: tuple[int, int]
) -> None:
    machine = Machine(cores=machine_cores, memory_bytes=1_000 * GB, disk_bytes=1_000 * GB)
    packing = choose(replace(RUN, cores=cores), machine, slots=slots)
    assert (packing.concurrency, packing.threads) == expected


@pytest.mark.parametrize(
    ("memory_gb", "expected"),
    [(1.0, 1), (1.9, 1), (2.0, 1), (2.3, 2), (100.0, 8)],
)
def test_memory_limits_how_many(memory_gb: float, expected: int) -> None:
    machine = Machine(cores=8, memory_bytes=int(memory_gb * GB), disk_bytes=100 * GB)
    packing = choose(replace(RUN, cores=1.0), machine, slots=20)
    assert packing.concurrency == expected
    assert packing.threads == 8 // expected


def test_the_line_says_why() -> None:
    assert choose(RUN, TWO, slots=10).why == (
        "2 side by side, 1 thread each: one run uses 1.0 of 2 cores, memory allows 9, disk 45"
    )


@pytest.mark.parametrize(
    ("asked", "slots", "expected", "said"),
    [
        (1, 10, 1, "1 side by side as asked, 2 threads each"),
        (3, 10, 3, "3 side by side as asked, 1 thread each"),
        (20, 30, 9, "9 side by side, not 20 as asked, 1 thread each"),
        (20, 4, 4, "4 side by side, 1 thread each"),
    ],
)
def test_what_was_asked_is_done_as_far_as_it_fits(asked: int, slots: int, expected: int, said: str) -> None:
    packing = choose(RUN, TWO, slots=slots, asked=asked)
    assert packing.concurrency == expected
    assert packing.why.startswith(said)


GPU = replace(RUN, gpu_memory_bytes=3 * GB, gpu_share=0.4)


@pytest.mark.parametrize(
    ("needs", "gpu_gb", "expected"),
    [
        (GPU, 16, 3),  # three keep the GPU busy
        (GPU, 8, 2),  # its memory has room for two
        (GPU, 3, 1),
        (replace(GPU, gpu_share=0.97), 16, 1),  # one keeps it busy
        (replace(GPU, gpu_share=0.05), 80, 8),  # then the cores decide
        (replace(RUN, is_gpu_unknown=True), None, 1),
    ],
)
def test_memory_and_use_of_the_gpu_limit_how_many(needs: Needs, gpu_gb: int | None, expected: int) -> None:
    gpu_bytes = None if gpu_gb is None else gpu_gb * GB
    machine = Machine(cores=8, memory_bytes=100 * GB, disk_bytes=100 * GB, gpu_memory_bytes=gpu_bytes)
    assert choose(replace(needs, cores=1.0), machine, slots=20).concurrency == expected


def test_the_gpu_is_named_where_there_is_one() -> None:
    machine = replace(TWO, cores=8, gpu_memory_bytes=16 * GB)
    assert choose(GPU, machine, slots=20).why == (
        "3 side by side, 2 threads each: one run uses 1.0 of 8 cores and 40% of the GPU, "
        "memory allows 9, disk 45, GPU memory 4"
    )


def test_a_disk_that_does_not_hold_the_whole_list_is_told() -> None:
    packing = choose(RUN, TWO, slots=60)
    assert packing.concurrency == 2
    assert packing.why.endswith("memory allows 9, disk 45; the disk has no room for all 60")


def test_what_does_not_fit_at_all_is_refused_with_what_would() -> None:
    needs = replace(RUN, memory_bytes=7 * GB, replay_bytes=6 * GB, replay_capacity=1_000_000)
    with pytest.raises(NoRoomError) as error:
        choose(needs, replace(TWO, memory_bytes=4 * GB), slots=3)
    assert str(error.value) == "one run needs 7.0 GB, 4.0 GB is free: use --set replay.capacity=500000"


def test_what_fits_after_the_remedy_is_accepted() -> None:
    needs = replace(RUN, memory_bytes=7 * GB, replay_bytes=6 * GB, replay_capacity=1_234_567)
    machine = replace(TWO, memory_bytes=3_333_333_333)
    with pytest.raises(NoRoomError) as error:
        choose(needs, machine, slots=3)
    capacity = int(str(error.value).rpartition("=")[2])
    smaller = replace(needs, memory_bytes=GB + 6 * GB * capacity // 1_234_567)
    assert choose(smaller, machine, slots=3).concurrency == 1


@pytest.mark.parametrize(
    ("needs", "machine", "said"),
    [
        (replace(RUN, memory_bytes=20 * GB), TWO, "20.0 GB, 10.0 GB is free: free some first"),
        (replace(RUN, disk_bytes=200 * GB), TWO, "200.0 GB of disk, 100.0 GB is free: make room, or use --set record"),
        (GPU, replace(TWO, gpu_memory_bytes=GB), "3.0 GB of GPU memory, 1.0 GB is free: use --set device=cpu"),
    ],
)
def test_every_shortage_has_its_remedy(needs: Needs, machine: Machine, said: str) -> None:
    with pytest.raises(NoRoomError, match=said):
        choose(needs, machine, slots=3)


def test_runs_that_differ_count_with_the_largest_of_them_and_the_cores_of_the_first() -> None:
    second = Needs(
        cores=0.3, memory_bytes=5 * GB, disk_bytes=GB, gpu_memory_bytes=GB, replay_bytes=4 * GB, replay_capacity=7
    )
    assert together([RUN, second]) == Needs(
        cores=RUN.cores,
        memory_bytes=5 * GB,
        disk_bytes=2 * GB,
        gpu_memory_bytes=GB,
        replay_bytes=4 * GB,
        replay_capacity=7,
    )
