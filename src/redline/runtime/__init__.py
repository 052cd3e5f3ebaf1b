"""Who runs where: the same actor, store and learner by turns in one process, or in several."""
