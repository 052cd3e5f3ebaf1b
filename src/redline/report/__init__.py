"""Reports: what a run has kept, in numbers and in pictures."""
