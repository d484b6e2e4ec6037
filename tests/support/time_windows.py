"""Windows of time by their definition, as queries of DuckDB over all rows of a table."""


def hopping(table: str, over: str, size: str, every: str, offset: str = "0 seconds") -> str:
    """The rows of a table in each of the windows that they are in."""
    size, every = f"INTERVAL '{size}'", f"INTERVAL '{every}'"
    origin = f"TIMESTAMP '1970-01-01' + INTERVAL '{offset}'"
    # No window of these tests is longer than nine steps.
    return (
        f"(SELECT {table}.*, s AS window_start, s + {size} AS window_end "
        f"FROM {table}, range(9) r(i), LATERAL (SELECT "
        f"time_bucket({every}, {over}, {origin}) - to_microseconds(i * "
        f"extract(epoch FROM {every})::BIGINT * 1000000) AS s) WHERE {over} < s + {size})"
    )


def sessions(table: str, over: str, pause: str, *by: str) -> str:
    """Rows numbered by how many pauses precede them in their partition."""
    pause = f"INTERVAL '{pause}'"
    partition = ", ".join(by) or "1"
    in_order = f"OVER (PARTITION BY {partition} ORDER BY {over})"
    begins = f"CASE WHEN {over} - lag({over}) {in_order} < {pause} THEN 0 ELSE 1 END"
    within = f"OVER (PARTITION BY {partition}, g)"
    return (
        f"(SELECT * EXCLUDE (g, b), min({over}) {within} AS window_start, "
        f"max({over}) {within} + {pause} AS window_end FROM "
        f"(SELECT *, sum(b) {in_order} AS g FROM "
        f"(SELECT *, {begins} AS b FROM {table} WHERE {over} IS NOT NULL)))"
    )
