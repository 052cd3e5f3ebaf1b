"""A sum tree in pure Python, one leaf at a time: what the vectorised one is measured against."""


class PureSumTree:
    """Sums in a list, the root at 1, a node's children at twice its index and the one after."""

    def __init__(self, num_leaves: int) -> None:
        self._first_leaf = 1 << max(num_leaves - 1, 0).bit_length()
        self._sums = [0.0] * (2 * self._first_leaf)

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return self._sums[1]

    def set(self, leaf: int, value: float) -> None:
        """Set a leaf, and add up what is above it."""
        sums = self._sums
        node = leaf + self._first_leaf
        sums[node] = value
        while node > 1:
            node >>= 1
            sums[node] = sums[2 * node] + sums[2 * node + 1]

    def find(self, mass: float) -> int:
        """Return the leaf at which the running sum of leaves exceeds `mass`; never one that is zero, as ours."""
        sums = self._sums
        node = 1
        while node < self._first_leaf:
            node *= 2
            if mass >= sums[node] and sums[node + 1] > 0.0:
                mass -= sums[node]
                node += 1
        return node - self._first_leaf
