"""Runs on a Ray cluster, through a process that talks to Ray; when that process, or the cluster, ends, runs go on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redline.errors import UserError
from redline.fleet.engines.ray_cluster import (
    CLOSE_S,
    Cluster,
    DriverProcess,
    Link,
    check_address,
    check_ray,
    first_word,
    name_of,
)
from redline.fleet.engines.ray_node import UNANSWERED
from redline.fleet.engines.ray_token import find_token
from redline.fleet.lease import read_holder
from redline.fleet.listing import Wishes
from redline.jsonl import plain_text

SILENT_S = 15.0  # after which a driver that was connected is given up
CONNECT_S = 120.0  # the same for one that still connects
RETRY_S = 5.0  # between the end of a driver and the next


def open_ray(folder: Path, wishes: Wishes) -> RayEngine:
    """Return the engine of a cluster; UserError unless all its nodes can be used."""
    check_ray()
    folder, address = folder.absolute(), check_address(wishes.address)
    token = find_token()
    link = Link(address, folder, token.variables)
    driver = link.open()
    found = first_word(driver, address)
    silent = [f"the node {name_of(node)} is left out: it {UNANSWERED}" for node in found.nodes if is_silent(node)]
    if found.refused or not found.cores or len(found.problems) > len(silent):
        driver.close()
        problem = next((each for each in found.problems if UNANSWERED not in each), found.problems[0])
        raise UserError(
            found.refused
            or f"the Ray cluster at {address} can't train this fleet: {problem};"
            f" redline cluster check --engine.address {address} --dir {folder} shows all nodes"
        )
    return RayEngine(link, driver, found, [*filter(None, [token.note]), *silent])


def is_silent(node: Mapping[str, Any]) -> bool:
    """Tell whether a node may be lost, which Ray notices late: that is no reason to refuse the others."""
    return node.get("problem") == UNANSWERED


class RayEngine:
    """Starts runners on the nodes of a cluster."""

    def __init__(self, link: Link, driver: DriverProcess, cluster: Cluster, notes: Sequence[str]) -> None:
        self._link = link
        self._driver: DriverProcess | None = driver
        self._cluster = cluster
        self._notes = list(notes)
        self._is_lost = False
        self._lost_s = 0.0
        self._told = ""  # why the cluster was refused, if it was
        self._placed: dict[str, tuple[int, int]] = {}  # threads, and the epoch of the lease before

    def place(self, slot: str, threads: int) -> None:
        """Let the driver start the runner of a slot, now or when there is one again."""
        self._placed[slot] = (threads, self._epoch(slot))
        if self._driver is not None:
            self._driver.order(place=slot, threads=threads)

    def poll(self) -> list[str]:
        """Follow the driver and the nodes; a driver that has ended is replaced."""
        if self._driver is None:
            if time.monotonic() - self._lost_s >= RETRY_S:
                self._start()
        else:
            code = self._driver.exit_code
            for event in self._driver.events():
                self._take(event)
            if code is not None or self._is_silent(self._driver):
                self._lose(self._driver)
        notes, self._notes = self._notes, []
        return notes

    def exit_code(self, slot: str) -> int | None:
        """Leave it to the leases: a node that is lost tells no exit code."""
        return None

    def cores(self) -> int | None:
        """Return the cores of the nodes that can be used now; 0 while the cluster does not answer."""
        return self._cluster.cores

    def close(self) -> None:
        """Let the driver end; runners go on."""
        if self._driver is not None:
            self._driver.close(CLOSE_S)
            self._driver = None

    def _start(self) -> None:
        try:
            self._driver = self._link.open()
            self._placed = {
                slot: (threads, at) for slot, (threads, at) in self._placed.items() if self._epoch(slot) == at
            }
            for slot, (threads, _) in self._placed.items():  # the driver before took these orders with it
                self._driver.order(place=slot, threads=threads)
        except (UserError, OSError) as error:  # such as no more processes
            self._lost_s = time.monotonic()
            self._note_once(str(error))

    def _epoch(self, slot: str) -> int:
        holder = None if self._link.folder is None else read_holder(self._link.folder, slot)
        return 0 if holder is None else holder.epoch

    def _is_silent(self, driver: DriverProcess) -> bool:
        now_s = time.monotonic()
        return now_s - driver.begun_s > CONNECT_S if driver.heard_s is None else now_s - driver.heard_s > SILENT_S

    def _take(self, event: Mapping[str, Any]) -> None:
        if "note" in event:
            self._notes.append(plain_text(event["note"]))
        if "refused" in event:
            self._note_once(plain_text(event["refused"]))
        if isinstance(nodes := event.get("nodes"), list):
            self._compare(Cluster([node for node in nodes if isinstance(node, dict)]))

    def _compare(self, cluster: Cluster) -> None:
        """Take over what the nodes are, and note what has changed."""
        if self._is_lost:
            self._notes.append(f"the Ray cluster at {self._link.address} answers again: {cluster.cores} cores")
            self._is_lost, self._told = False, ""
        before, now = ({name_of(node): node for node in each.nodes} for each in (self._cluster, cluster))
        self._notes += [f"the node {name} is lost" for name in before if name not in now]
        for name, node in now.items():
            problem = plain_text(node.get("problem") or "")
            if name not in before or bool(before[name].get("problem")) != bool(problem):
                self._notes.append(f"the node {name} {f'is left out: it {problem}' if problem else 'is there'}")
        self._cluster = cluster

    def _lose(self, driver: DriverProcess) -> None:
        """Note that Ray can't be asked any more, and try again later."""
        driver.close()
        self._driver, self._cluster, self._lost_s = None, Cluster(), time.monotonic()
        if not self._is_lost:
            self._is_lost = True
            self._notes.append(
                f"the Ray cluster at {self._link.address} does not answer: runs go on, and others wait for it"
            )

    def _note_once(self, text: str) -> None:
        if text != self._told:
            self._notes.append(text)
        self._told = text
