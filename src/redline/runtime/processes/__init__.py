"""The asynchronous topology: actors, learner and evaluator in processes of their own, and who watches them."""
