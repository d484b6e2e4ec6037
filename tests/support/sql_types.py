"""Types of SQL, drawn at random."""

from hypothesis import strategies as st

from ikebana.codecs.sql_type import (
    Array,
    Decimal,
    Enum,
    List,
    Map,
    Scalar,
    SqlType,
    Struct,
    Tuple,
    Union,
)

SCALARS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT"),
    *("UINTEGER", "UBIGINT", "UHUGEINT", "BIGNUM", "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "BIT"),
    *("UUID", "DATE", "TIME", "TIME WITH TIME ZONE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"),
    *("TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "INTERVAL", "JSON", '"NULL"', "VARIANT"),
)
WORDS = {word for name in SCALARS for word in name.split()} | {"STRUCT", "MAP", "UNION", "ENUM"}
names = st.one_of(
    st.sampled_from(["a", "B c", 'd"e', "select", "Key", "é", "1", "x_1", "date", "timestamp"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
)
decimals = st.integers(1, 38).flatmap(
    lambda width: st.integers(0, width).map(lambda scale: Decimal(width, scale))
)
texts = st.text("ab' ,)", max_size=3)


def fields(of: st.SearchStrategy[SqlType]) -> st.SearchStrategy[tuple[tuple[str, SqlType], ...]]:
    """Fields of which the names differ in more than case."""
    pairs = st.lists(
        st.tuples(names, of), min_size=1, max_size=3, unique_by=lambda pair: pair[0].casefold()
    )
    return pairs.map(tuple)


types: st.SearchStrategy[SqlType] = st.recursive(
    st.one_of(
        st.sampled_from(SCALARS).map(Scalar),
        decimals,
        st.lists(texts, min_size=1, max_size=3, unique=True).map(tuple).map(Enum),
    ),
    lambda of: st.one_of(
        of.map(List),
        st.builds(Array, of, st.integers(1, 5)),
        st.builds(Map, of, of),
        fields(of).map(Struct),
        fields(of).map(Union),
        st.lists(of, min_size=1, max_size=3).map(tuple).map(Tuple),
    ),
    max_leaves=5,
)
