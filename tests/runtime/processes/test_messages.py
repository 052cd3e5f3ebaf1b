"""Messages: whole or not at all, in order, and nobody hangs because the other end does or is gone."""

from __future__ import annotations

import os
import select
from pathlib import Path

import numpy as np
from child_work import PATIENCE_S, StartChild, look_until, send_large, send_many

from redline.runtime.processes.messages import Inbox, Message


def received(inbox: Inbox, count: int) -> list[Message]:
    """Return so many messages, however many looks that takes."""
    messages: list[Message] = []

    def have_come() -> bool:
        messages.extend(inbox.receive())
        return len(messages) >= count

    look_until(have_come)
    return messages


def is_full(descriptor: int) -> bool:
    """Tell whether a pipe takes nothing more at present."""
    return not select.select([], [descriptor], [], 0.0)[1]


def test_a_message_comes_as_it_was_sent() -> None:
    inbox = Inbox()
    rows = [{"text": "a\nb", "lane": 1}]
    inbox.outbox.send("saved", path=Path("a/b"), steps=np.int64(7), loss=float("nan"), rows=rows)
    assert inbox.receive() == [{"kind": "saved", "path": "a/b", "steps": 7, "loss": None, "rows": rows}]


def test_an_inbox_without_messages_gives_none_at_once() -> None:
    inbox = Inbox()
    assert inbox.receive() == []
    inbox.outbox.send("first")
    assert inbox.receive() == [{"kind": "first"}]
    assert inbox.receive() == []


def test_messages_come_in_order_and_more_than_a_pipe_holds(start_child: StartChild) -> None:
    inbox = Inbox()
    child = start_child(send_many, inbox.outbox, 2_000)
    look_until(lambda: is_full(inbox.outbox._descriptor))  # the sender waits
    inbox.outbox.close()
    assert [message["number"] for message in received(inbox, 2_000)] == list(range(2_000))
    child.join(PATIENCE_S)
    assert child.exitcode == 0
    assert inbox.receive() == []  # the end of the pipe is no message


def test_a_message_larger_than_a_pipe_comes_whole(start_child: StartChild) -> None:
    inbox = Inbox()
    child = start_child(send_large, inbox.outbox, 1_000_000)
    looks = [inbox.receive()]  # while it is being sent: no part of it
    while not looks[-1]:
        looks.append(inbox.receive())
    assert [len(messages) for messages in looks] == [0] * (len(looks) - 1) + [1]
    assert looks[-1] == [{"kind": "large", "text": "ä" * 1_000_000}]
    child.join(PATIENCE_S)
    assert child.exitcode == 0


def test_a_line_without_an_end_is_no_message_until_its_end_comes() -> None:
    inbox = Inbox()
    inbox.outbox.send("whole")
    os.write(inbox.outbox._descriptor, b'{"kind": "to')
    assert inbox.receive() == [{"kind": "whole"}]
    assert inbox.receive() == []
    os.write(inbox.outbox._descriptor, b'rn"}\n{"kind":')
    assert inbox.receive() == [{"kind": "torn"}]


def test_a_line_that_its_sender_did_not_live_to_end_is_no_message() -> None:
    inbox = Inbox()
    inbox.outbox.send("whole")
    os.write(inbox.outbox._descriptor, b'{"kind": "torn"}')
    inbox.outbox.close()
    assert inbox.receive() == [{"kind": "whole"}]
    assert inbox.receive() == []


def test_a_sender_that_is_killed_in_a_message_leaves_no_part_of_it(start_child: StartChild) -> None:
    inbox = Inbox()
    child = start_child(send_large, inbox.outbox, 1_000_000)
    look_until(lambda: is_full(inbox.outbox._descriptor))
    child.kill()
    child.join()
    inbox.outbox.close()
    assert inbox.receive() == []
    assert inbox.receive() == []


def test_a_supervisor_that_is_gone_is_no_error(start_child: StartChild) -> None:
    inbox = Inbox()
    outbox = inbox.outbox
    children = [start_child(send_large, outbox, 1_000_000)]
    look_until(lambda: is_full(outbox._descriptor))
    inbox.close()  # in the midst of a message
    children.append(start_child(send_many, outbox, 10))
    outbox.send("anybody there?")
    for child in children:
        child.join(PATIENCE_S)
    assert [child.exitcode for child in children] == [0, 0]
