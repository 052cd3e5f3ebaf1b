"""Counts over processes that come and go, worked by hand: the parent is read before its child."""

from redline.monitor.processes import Count, Identity, Total

P, C, D = (1, 10), (2, 20), (3, 30)
Reading = dict[Identity, Count]


def parent(own: float, handed: float) -> Reading:
    return {P: Count(0, own, handed)}


def child(own: float, handed: float = 0.0) -> Reading:
    return {C: Count(P[0], own, handed)}


def grown(*readings: Reading) -> list[float]:
    total = Total()
    return [total.advance(reading) for reading in readings]


def test_a_count_begins_with_its_first_reading() -> None:
    assert grown(parent(100.0, 7.0), parent(103.0, 7.0)) == [0.0, 3.0]


def test_a_count_of_what_was_just_started_begins_with_nothing() -> None:
    assert Total(last={}).advance({**parent(0.5, 0.0), **child(0.25)}) == 0.75


def test_a_new_process_brings_all_it_has_counted() -> None:
    assert grown(parent(100.0, 0.0), {**parent(101.0, 0.0), **child(2.0)}) == [0.0, 3.0]


def test_a_child_that_nobody_ever_saw_is_counted_through_its_parent() -> None:
    assert grown(parent(10.0, 0.0), parent(10.0, 0.75)) == [0.0, 0.75]


def test_what_a_child_hands_to_its_parent_when_it_ends_counts_once() -> None:
    # the child used another 0.5 before it ended, the parent 1
    assert grown({**parent(10.0, 0.0), **child(5.0)}, parent(11.0, 5.5)) == [0.0, 1.5]


def test_a_child_that_nobody_waits_for_is_not_taken_off_however_busy_its_parent_is() -> None:
    assert grown({**parent(10.0, 0.0), **child(5.0)}, parent(17.0, 0.0)) == [0.0, 7.0]


def test_a_child_that_goes_between_two_reads_of_one_sample_counts_once() -> None:
    # the parent was read, then the child was waited for, then there was no child to read
    readings = ({**parent(1.0, 0.0), **child(5.0)}, parent(1.0, 0.0), parent(1.0, 5.25), parent(1.0, 5.25))
    assert grown(*readings) == [0.0, 0.0, 0.25, 0.0]


def test_what_was_late_is_late_for_one_sample_only() -> None:
    # a parent that does not wait for its children hands nothing on; what comes later is of others
    readings = ({**parent(1.0, 0.0), **child(5.0)}, parent(1.0, 0.0), parent(1.0, 0.0), parent(1.0, 3.0))
    assert grown(*readings) == [0.0, 0.0, 0.0, 3.0]


def test_a_grandchild_that_goes_with_its_parent_is_handed_to_the_living() -> None:
    before = {**parent(0.0, 0.0), **child(2.0), D: Count(C[0], 4.0, 0.0)}
    assert grown(before, parent(0.0, 6.5)) == [0.0, 0.5]


def test_an_orphan_counts_on() -> None:
    before = {**parent(0.0, 0.0), **child(2.0), D: Count(C[0], 4.0, 0.0)}
    assert grown(before, {**parent(0.0, 2.0), D: Count(1, 4.5, 0.0)}) == [0.0, 0.5]


def test_a_number_that_another_process_has_taken_is_another_process() -> None:
    after = {**parent(10.0, 7.0), (C[0], 99): Count(P[0], 1.0, 0.0)}
    assert grown({**parent(10.0, 0.0), **child(7.0)}, after) == [0.0, 1.0]
