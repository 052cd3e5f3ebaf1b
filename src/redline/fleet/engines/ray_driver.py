"""The process that talks to a Ray cluster for a fleet: `python -m redline.fleet.engines.ray_driver ADDRESS FOLDER FD`.

Ray ends the process that talks to it, without an exception, some time after the cluster's head is gone. That must not
be the supervisor, so orders come as JSON lines on stdin, and what happens goes as JSON lines to a pipe. It may be
killed at any moment: runners go on.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from redline.files import remove_tree, replace_file
from redline.fleet.engines import ray_node
from redline.fleet.engines.ray_token import MODE, TOKEN_MODE, VALUE
from redline.fleet.lease import LEASES, read_holder
from redline.fleet.slots import SUPERVISOR

LOOK_S, ROUND_S = 2.0, 0.2
CONNECT_S, STRANGER_S, DESCRIBE_S = 5.0, 60.0, 60.0
AGAIN_S = 30.0  # until a node that could not be used is asked again
MOST_STARTS = 5  # of a slot whose task ends before its runner has taken the lease
SUSPECT_S = 30.0  # without new tasks for a node that lost one: Ray notices a lost node after up to 66 s
RAYLET = "raylet"  # the process of Ray that each node has
ENTERED = 0  # exit code of a stranger who got in
STRANGER = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"


class RefusedError(Exception):
    """The cluster can't be reached, or must not be used."""


@dataclass(frozen=True)
class Node:
    """A node of the cluster."""

    key: str
    address: str
    cores: int
    facts: Mapping[str, Any]
    problem: str  # why nothing is placed there; empty if it can be used
    told_s: float

    def to_json(self) -> dict[str, Any]:
        """Return it for the supervisor."""
        return {"node": self.address, "ray_cores": self.cores, "problem": self.problem, **self.facts}


@dataclass(frozen=True)
class Question:
    """What a node was asked."""

    reference: Any  # of the task
    probe: str  # file that it must find
    secret: str
    asked_s: float


@dataclass
class Start:
    """A slot that is to be trained, or whose task runs."""

    slot: str
    threads: int
    epoch: int  # of the lease before
    node: str = ""
    starts: int = 0


def check_address(address: str) -> None:
    """Raise RefusedError if nothing listens there: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise RefusedError(f"no Ray head answers at {address} ({error}): start it, or correct the address") from None


def check_strangers(address: str) -> None:
    """Raise RefusedError if the cluster lets somebody in who has another token."""
    wrong = {**os.environ, MODE: TOKEN_MODE, VALUE: secrets.token_hex(32)}
    with suppress(subprocess.TimeoutExpired):
        stranger = subprocess.run(
            [sys.executable, "-c", STRANGER, address], env=wrong, capture_output=True, timeout=STRANGER_S, check=False
        )
        if stranger.returncode == ENTERED:
            raise RefusedError(
                f"the Ray cluster at {address} runs anybody's code:"
                f" start its head and all nodes with {MODE}={TOKEN_MODE}"
            )


def connect(address: str) -> None:
    """Become a driver of the cluster; RefusedError if that can't be."""
    check_address(address)
    try:
        GcsClient(address=address)
    except AuthenticationError:
        raise RefusedError(
            f"the Ray cluster at {address} refuses this machine's token: copy the file ~/.ray/auth_token of the head"
        ) from None
    except (RayError, RuntimeError, OSError) as error:
        raise RefusedError(f"no Ray head of this version answers at {address}: {_line(error)}") from None
    check_strangers(address)
    no_node = f"this machine is no node of the Ray cluster at {address}: ray start --address={address} makes it one"
    if not any(process.info["name"] == RAYLET for process in psutil.process_iter(["name"])):
        raise RefusedError(no_node)  # Ray would look for it for more than a minute
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise RefusedError(f"{no_node} ({_line(error)})") from None


class Driver:
    """Places runners on the nodes of a cluster."""

    def __init__(self, folder: Path | None, descriptor: int) -> None:
        self._folder = folder
        self._voice = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8")
        self._nodes: dict[str, Node] = {}
        self._questions: dict[str, Question] = {}  # that nodes have not answered yet
        self._has_told = False
        self._waiting: dict[str, Start] = {}
        self._running: dict[Any, Start] = {}  # by the reference of the task
        self._others: list[str] = []  # slots that ran before this driver began
        self._suspect_until_s: dict[str, float] = {}  # nodes that have lost a task
        self._describe = ray.remote(num_cpus=0, max_retries=0)(ray_node.describe)
        self._train = ray.remote(max_retries=0)(ray_node.train)

    def tell(self, **facts: Any) -> None:
        """Tell the supervisor."""
        self._voice.write(json.dumps(facts) + "\n")

    def run(self, orders: queue.SimpleQueue[str | None]) -> None:
        """Do as the supervisor says until it hangs up."""
        if self._folder is not None and (self._folder / LEASES).is_dir():
            self._others = [path.name for path in (self._folder / LEASES).iterdir() if path.name != SUPERVISOR]
        try:
            self._follow(orders)
        finally:
            for question in self._questions.values():
                self._forget(question)

    def _follow(self, orders: queue.SimpleQueue[str | None]) -> None:
        next_look_s = 0.0
        while True:
            if time.monotonic() >= next_look_s:
                self.look()
                next_look_s = time.monotonic() + (LOOK_S if self._has_told else ROUND_S)
            with suppress(queue.Empty):
                if (order := orders.get(timeout=ROUND_S)) is None:
                    return
                asked = json.loads(order)
                self._waiting[asked["place"]] = self._start(asked["place"], asked["threads"])
            self._collect()
            self._place()

    def look(self) -> None:
        """Look which nodes there are; tell once all that were there at first have said what they are."""
        now_s = time.monotonic()
        found = {facts["NodeID"]: facts for facts in ray.nodes() if facts["Alive"]}
        for key in found.keys() - self._questions.keys():
            known = self._nodes.get(key)
            if known is None or (known.problem and now_s - known.told_s > AGAIN_S):
                self._questions[key] = self._ask(key, now_s)
        for key, question in list(self._questions.items()):
            is_answered = bool(ray.wait([question.reference], timeout=0)[0])
            if key not in found or is_answered or now_s - question.asked_s > DESCRIBE_S:
                del self._questions[key]
                self._forget(question)
                if key in found:
                    self._nodes[key] = self._read_node(found[key], key, question, is_answered=is_answered)
        self._nodes = {key: node for key, node in self._nodes.items() if key in found}
        if self._has_told or not self._questions:
            self.tell(nodes=[node.to_json() for node in self._nodes.values()])
            self._has_told = True

    def _ask(self, key: str, now_s: float) -> Question:
        """Ask a node what it is, and whether it sees the folder."""
        probe, secret = f".redline-{secrets.token_hex(8)}.tmp", secrets.token_hex(16)
        if self._folder is not None:
            replace_file(self._folder / probe, [secret.encode()])
        folder = "" if self._folder is None else str(self._folder)
        return Question(self._on(self._describe, key).remote(folder, probe, secret), probe, secret, now_s)

    def _forget(self, question: Question) -> None:
        if self._folder is not None:
            remove_tree(self._folder / question.probe)

    def _read_node(self, found: Mapping[str, Any], key: str, question: Question, *, is_answered: bool) -> Node:
        facts: dict[str, Any] = {"host": str(found.get("NodeManagerHostname"))}
        problem = ray_node.UNANSWERED
        if is_answered:
            try:
                facts = json.loads(ray.get(question.reference))
                problem = ray_node.problem_of(facts, self._folder, question.secret)
            except RayError as error:  # such as a Python without Redline
                problem = f"can't run Redline: {_line(error)}"
        cores = int(found.get("Resources", {}).get("CPU", 0))
        return Node(key, str(found.get("NodeManagerAddress")), cores, facts, problem, time.monotonic())

    def _start(self, slot: str, threads: int, starts: int = 0) -> Start:
        holder = None if self._folder is None else read_holder(self._folder, slot)
        return Start(slot, threads, 0 if holder is None else holder.epoch, starts=starts)

    def _place(self) -> None:
        """Give each waiting slot to the node that has the most free cores."""
        for start in list(self._waiting.values()):
            now_s, free = time.monotonic(), self._free_cores()
            free = {key: cores for key, cores in free.items() if self._suspect_until_s.get(key, 0.0) < now_s}
            if not free or free[best := max(free, key=lambda key: free[key])] < start.threads:
                return
            del self._waiting[start.slot]
            start.node, start.starts = best, start.starts + 1
            task = self._on(self._train, best, num_cpus=start.threads)
            self._running[task.remote(str(self._folder), start.slot, start.threads)] = start

    def _free_cores(self) -> dict[str, int]:
        """Return the free cores of each usable node; what runs from an earlier driver's time counts too."""
        free = {node.key: node.cores for node in self._nodes.values() if not node.problem}
        of_host = {node.facts["host"]: node.key for node in self._nodes.values() if not node.problem}
        for start in self._running.values():
            if start.node in free:
                free[start.node] -= start.threads
        own = {start.slot for start in self._running.values()}
        for slot in list(self._others):
            holder = None if self._folder is None else read_holder(self._folder, slot)
            if holder is None or holder.state == "ended" or slot in own:
                self._others.remove(slot)
            elif (key := of_host.get(holder.place.host)) is not None:
                free[key] -= max(1, holder.threads)
        return free

    def _collect(self) -> None:
        """Take tasks that are over; those whose node was lost before the runner began start again elsewhere."""
        if not self._running:
            return
        ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for reference in ready:
            start = self._running.pop(reference)
            try:
                ray.get(reference)
            except RayError as error:
                self._suspect_until_s[start.node] = time.monotonic() + SUSPECT_S
                self.tell(note=f"{start.slot}: Ray lost its task, which its run may survive: {_line(error)}")
                again = self._start(start.slot, start.threads, start.starts)
                if again.epoch == start.epoch and start.starts < MOST_STARTS:
                    self._waiting.setdefault(start.slot, again)

    def _on(self, function: Any, key: str, **options: Any) -> Any:
        return function.options(scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False), **options)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].partition(". ")[0][:200]


def _read_orders(orders: queue.SimpleQueue[str | None]) -> None:
    for line in sys.stdin:
        orders.put(line)
    orders.put(None)


def main(arguments: Sequence[str]) -> int:
    """Connect, then drive until told to end."""
    address, folder, descriptor = arguments
    try:
        connect(address)
    except RefusedError as error:
        os.write(int(descriptor), (json.dumps({"refused": str(error)}) + "\n").encode())
        return 1
    orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    Driver(Path(folder) if folder else None, int(descriptor)).run(orders)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
