"""Texts that are SQL, nearly SQL, or none, for whoever reads SQL of a pipeline file."""

from hypothesis import strategies as st

_LEAVES = (
    *("o.id", "c.x", "o.s", "c.key", "o", "id", "x", "s", "key", "value", "nam", "*", "o.*"),
    *("1", "1.5", "1e400", "NULL", "true", "'a'", "''", '""', "?", "$1", "#1", "DEFAULT"),
    *("now()", "random", "current_date", "[1, 2]", "INTERVAL 1 DAY", "DATE '2020-01-01'"),
    *("x.y.z.w", "BIGINT", "DECIMAL(3,1)", "count(*)", "'\ud800'", "\0", "/*", "--", ")", ";"),
)
_FORMS = """
{a} AND {b}|{a} OR {b}|NOT {a}|{a} = {b}|{a} > {b}|{a} + {b}|{a}, {b}|{a} UNION SELECT {b}
{a} INTERSECT SELECT {b}|{a} EXCEPT (SELECT {b})|{a} AS z|{a} z|z: {a}|({a})|({a}).z|({a})[1]
{a}::BIGINT|{a}::ENUM('a')|{a}::o.id|TRY_CAST({a} AS {b})|{a} FROM t|{a} FROM (SELECT {b})
{a} WHERE {b}|{a} GROUP BY {b}|{a} GROUP BY ALL|{a} HAVING {b}|{a} QUALIFY {b}|{a} ORDER BY {b}
{a} LIMIT {b}|{a} USING SAMPLE 5|DISTINCT {a}|DISTINCT ON ({a}) {b}|{a} IN ({b}, 1)
{a} IN (SELECT {b})|EXISTS (SELECT {a})|(SELECT {a})|{a} = ANY({b})|{a} BETWEEN {b} AND {b}
CASE WHEN {a} THEN {b} END|CASE {a} WHEN {b} THEN {a} END|sum({a})|row_number() OVER ()
sum({a}) OVER (PARTITION BY {b})|count(*) FILTER ({a})|list({a} ORDER BY {b})|coalesce({a}, {b})
list_transform([{a}], lambda x: {b})|list_transform([{a}], x -> {b})|lambda x: {a}|{a} -> {b}
[{a} for x in {b}]|struct_pack(a := {a})|row({a})|COLUMNS({a})|unnest({a})|repeat_row({a})
{a} IS NULL|{a} LIKE {b}|{a} COLLATE NOCASE|{a} AT TIME ZONE 'UTC'|list_aggregate([{a}], {b})
{a}; SELECT {b}|{a}; DROP TABLE t|{a} -- c|{a} /* {b} */|{a})|({a}|EXTRACT({a} FROM {b})
{a}[]|STRUCT(a {a})|max({a})|top(3, {a})|top(0, {a})|avg({a}, {b})|VALUES ({a})|{a} INTO t
-{a}|{a}!|{a}.upper()|if({a}, {b}, {b})|{a} WINDOW w AS ()|try({a})|date_trunc({a}, {b})
"""
_forms = [form for line in _FORMS.strip().splitlines() for form in line.split("|")]
_words = sorted({word for form in _forms for word in form.split()} | {*_LEAVES})


def _filled(form: str, a: str, b: str) -> str:
    return form.replace("{a}", a).replace("{b}", b)


_shaped = st.recursive(
    st.sampled_from(_LEAVES),
    lambda inner: st.builds(_filled, st.sampled_from(_forms), inner, inner),
    max_leaves=5,
)
_shuffled = st.lists(st.sampled_from(_words), max_size=6).map(" ".join)
sql_texts = st.one_of(_shaped, _shaped, _shuffled)
