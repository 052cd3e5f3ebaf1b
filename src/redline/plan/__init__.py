"""Plans: what a training needs, how it runs fastest here, and what it costs, before it starts."""
