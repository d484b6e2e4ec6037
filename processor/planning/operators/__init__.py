"""The kinds of operators: facts that the planner, the checks and the graph need of each."""
