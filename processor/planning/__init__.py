"""Plans as values: checks, the graph of operators, and the physical plan that runs."""
