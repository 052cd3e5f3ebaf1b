"""A file of blocks: whatever happens to it, what is whole is found, and nothing else."""

from pathlib import Path

import pytest

from redline.errors import UserError
from redline.runs.blocks import (
    FILE_MAGIC,
    MAX_PAYLOAD_BYTES,
    Block,
    BlockWriter,
    Damage,
    cut_blocks_after,
    encode_block,
    iterate_blocks,
    set_aside,
)

PAYLOADS = [b"first", b"RLrc in the midst", b"", b"last one"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "recordings" / "episodes.rec"
    with BlockWriter(path) as writer:
        for number, payload in enumerate(PAYLOADS):
            writer.append(2, 10 * number, payload)
    return path


def payloads(path: Path) -> list[bytes]:
    return [found.payload for found in iterate_blocks(path) if isinstance(found, Block)]


def damages(path: Path) -> list[Damage]:
    return [found for found in iterate_blocks(path) if isinstance(found, Damage)]


def test_blocks_come_back_in_order(path: Path) -> None:
    found = list(iterate_blocks(path))
    assert [(block.kind, block.steps, block.payload) for block in found if isinstance(block, Block)] == [
        (2, 10 * number, payload) for number, payload in enumerate(PAYLOADS)
    ]
    assert len(found) == len(PAYLOADS)


def test_wherever_the_last_write_stops_the_others_are_whole_and_the_next_writer_goes_on(path: Path) -> None:
    whole = path.read_bytes()
    last = len(encode_block(2, 30, PAYLOADS[-1]))
    for cut in range(1, last):
        path.write_bytes(whole[:-cut])
        assert payloads(path) == PAYLOADS[:-1]
        (tail,) = damages(path)
        assert tail.is_torn
        assert tail.length == last - cut
        with BlockWriter(path) as writer:
            writer.append(2, 30, b"again")
        assert payloads(path) == [*PAYLOADS[:-1], b"again"]
        assert damages(path) == []


def test_a_flipped_bit_anywhere_in_a_block_costs_that_block_alone(path: Path) -> None:
    whole = path.read_bytes()
    begin = whole.index(PAYLOADS[1]) - 24
    for place in range(begin, begin + 24 + len(PAYLOADS[1])):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            assert payloads(path) == [PAYLOADS[0], *PAYLOADS[2:]]
            assert [damage.is_torn for damage in damages(path)] == [False]


def test_a_flipped_bit_in_the_last_block_is_damage_and_no_torn_tail(path: Path) -> None:
    """But for its length: a longer one is what a torn block looks like."""
    whole = path.read_bytes()
    begin = len(whole) - len(PAYLOADS[-1]) - 24
    for place in range(begin, len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        (found,) = damages(path)
        assert found.is_torn == (begin + 8 <= place < begin + 12 and flipped[place] > whole[place])
        if not found.is_torn:  # the next writer leaves it alone
            with BlockWriter(path) as writer:
                writer.append(2, 40, b"next")
            assert payloads(path) == [*PAYLOADS[:-1], b"next"]


def test_a_file_full_of_false_beginnings_does_not_keep_a_reader(path: Path) -> None:
    """It gives up the rest rather than to read a hundred thousand bytes for each of them."""
    head = b"RLrc" + bytes([2, 0, 0, 0]) + (100_000).to_bytes(4, "little") + bytes(12)
    path.write_bytes(FILE_MAGIC + head * 20_000 + encode_block(2, 1, b"behind"))
    assert payloads(path) == []
    assert [damage.is_torn for damage in damages(path)] == [False]
    path.write_bytes(FILE_MAGIC + head * 20 + bytes(200_000) + encode_block(2, 1, b"behind"))
    assert payloads(path) == [b"behind"]


def test_a_file_of_another_kind_is_set_aside(path: Path) -> None:
    assert set_aside(path) is None
    assert set_aside(path.with_name("none.rec")) is None
    path.write_bytes(b"something else")
    said = set_aside(path)
    assert said is not None
    assert "is not a file of recordings" in said
    assert not path.exists()
    assert len(list(path.parent.glob("episodes.unreadable-*.rec"))) == 1


def test_zeros_behind_the_last_block_are_a_torn_tail(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(1000))
    assert payloads(path) == PAYLOADS
    assert [damage.is_torn for damage in damages(path)] == [True]


def test_a_length_beyond_all_need_is_not_believed(path: Path) -> None:
    head = bytearray(encode_block(2, 0, b"x"))
    head[8:12] = (0xFFFFFFFF).to_bytes(4, "little")
    path.write_bytes(FILE_MAGIC + head + encode_block(2, 1, b"next"))
    assert payloads(path) == [b"next"]
    with pytest.raises(ValueError, match="readers accept"):
        encode_block(2, 0, bytes(MAX_PAYLOAD_BYTES + 1))


def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "episodes.rec"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(UserError, match=r"is not a file of recordings"):
        list(iterate_blocks(path))
    with pytest.raises(UserError, match=r"is not a file of recordings"):
        BlockWriter(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_file_whose_writer_was_killed_at_once_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "episodes.rec"
    for length in range(len(FILE_MAGIC)):
        path.write_bytes(FILE_MAGIC[:length])
        assert list(iterate_blocks(path)) == []
        with BlockWriter(path) as writer:
            writer.append(2, 0, b"x")
        assert payloads(path) == [b"x"]


def test_blocks_beyond_a_checkpoint_move_to_the_lost_file(path: Path) -> None:
    assert cut_blocks_after(path, 15) == 2
    assert payloads(path) == PAYLOADS[:2]
    lost = path.with_name("episodes.lost.rec")
    assert payloads(lost) == PAYLOADS[2:]
    with BlockWriter(path) as writer:
        writer.append(2, 20, b"another past")
    assert cut_blocks_after(path, 15) == 1
    assert payloads(lost) == [*PAYLOADS[2:], b"another past"]
    assert cut_blocks_after(path, 15) == 0


def test_a_cut_that_was_killed_before_the_file_was_shortened_stores_nothing_twice(path: Path) -> None:
    before = path.read_bytes()
    cut_blocks_after(path, 15)
    path.write_bytes(before)
    assert cut_blocks_after(path, 15) == 2
    assert payloads(path.with_name("episodes.lost.rec")) == PAYLOADS[2:]


def test_a_full_disk_leaves_no_part_of_a_block(small_disk: Path) -> None:
    path = small_disk / "episodes.rec"
    with BlockWriter(path) as writer:
        writer.append(2, 0, b"kept")
        with pytest.raises(OSError, match="No space left"):
            writer.append(2, 1, bytes(4_000_000))
        writer.append(2, 2, b"later")
    assert payloads(path) == [b"kept", b"later"]
    assert damages(path) == []
