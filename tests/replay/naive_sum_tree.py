"""A sum tree that is obvious: plain Python, one leaf at a time."""

from __future__ import annotations


class NaiveSumTree:
    """A heap in a list: node 1 is the root, the children of node n are 2n and 2n + 1."""

    def __init__(self, num_leaves: int) -> None:
        self.first_leaf = 1
        while self.first_leaf < num_leaves:
            self.first_leaf *= 2
        self.nodes = [0.0] * (2 * self.first_leaf)

    @property
    def total(self) -> float:
        return self.nodes[1]

    def get(self, leaf: int) -> float:
        return self.nodes[self.first_leaf + leaf]

    def set(self, leaf: int, value: float) -> None:
        node = self.first_leaf + leaf
        self.nodes[node] = value
        while node > 1:
            node //= 2
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def find(self, mass: float) -> int:
        node = 1
        while node < self.first_leaf:
            left, right = self.nodes[2 * node], self.nodes[2 * node + 1]
            if mass >= left and right > 0:
                mass -= left
                node = 2 * node + 1
            else:
                node = 2 * node
        return node - self.first_leaf
