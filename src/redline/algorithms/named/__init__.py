"""One file per algorithm; a new file here is a new algorithm (docs/adding-an-algorithm.md)."""
