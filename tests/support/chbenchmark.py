"""CH-benCHmark on a small scale: tables of TPC-C and TPC-H, changes of them, and its queries.

Source of the queries: R. Cole and others, The mixed workload CH-benCHmark, DBTest 2011, with
tables of several words as one word, as in its pages at db.in.tum.de.  Values are drawn from fewer
words than there, and bounds are such that few rows meet every condition.
"""

from functools import partial
from random import Random
from typing import Any

from support.sql_oracle import Tables, history_of

_MONEY = "DECIMAL(12,2)"
TABLES: Tables = {
    "region": {"r_regionkey": "BIGINT", "r_name": "VARCHAR"},
    "nation": {"n_nationkey": "BIGINT", "n_name": "VARCHAR", "n_regionkey": "BIGINT"},
    "supplier": {
        "su_suppkey": "BIGINT",
        "su_name": "VARCHAR",
        "su_address": "VARCHAR",
        "su_nationkey": "BIGINT",
        "su_phone": "VARCHAR",
        "su_comment": "VARCHAR",
    },
    "item": {"i_id": "BIGINT", "i_name": "VARCHAR", "i_price": _MONEY, "i_data": "VARCHAR"},
    "stock": {
        "s_i_id": "BIGINT",
        "s_w_id": "BIGINT",
        "s_quantity": "BIGINT",
        "s_order_cnt": "BIGINT",
    },
    "customer": {
        "c_id": "BIGINT",
        "c_d_id": "BIGINT",
        "c_w_id": "BIGINT",
        "c_last": "VARCHAR",
        "c_city": "VARCHAR",
        "c_state": "VARCHAR",
        "c_phone": "VARCHAR",
        "c_balance": _MONEY,
    },
    "orders": {
        "o_id": "BIGINT",
        "o_d_id": "BIGINT",
        "o_w_id": "BIGINT",
        "o_c_id": "BIGINT",
        "o_entry_d": "TIMESTAMP",
        "o_carrier_id": "BIGINT",
        "o_ol_cnt": "BIGINT",
    },
    "neworder": {"no_o_id": "BIGINT", "no_d_id": "BIGINT", "no_w_id": "BIGINT"},
    "orderline": {
        "ol_o_id": "BIGINT",
        "ol_d_id": "BIGINT",
        "ol_w_id": "BIGINT",
        "ol_number": "BIGINT",
        "ol_i_id": "BIGINT",
        "ol_supply_w_id": "BIGINT",
        "ol_delivery_d": "TIMESTAMP",
        "ol_quantity": "BIGINT",
        "ol_amount": _MONEY,
    },
}
_REGIONS = ("Europe", "Asia")
_NATIONS = (("Germany", 0), ("Cambodia", 1), ("France", 0))
_SIZES = {
    "supplier": 9,
    "item": 4,
    "stock": 8,
    "customer": 8,
    "orders": 16,
    "neworder": 16,
    "orderline": 60,
}


def _moment(choice: Random) -> str:
    year = choice.choice([2006, 2007, 2009, 2011])
    return f"{year}-{choice.randint(1, 12):02}-{choice.randint(1, 28):02} 12:00:00"


def row(choice: Random, table: str, key: int) -> dict[str, Any]:
    """A row of a table with this key, whatever else it has."""
    pick = choice.choice
    match table:
        case "region":
            return {"r_regionkey": key, "r_name": _REGIONS[key]}
        case "nation":
            name, region = _NATIONS[key]
            # The first letter of a state is the number of a nation.
            return {"n_nationkey": ord("A") + key, "n_name": name, "n_regionkey": region}
        case "supplier":
            return {
                "su_suppkey": key,
                "su_name": f"Supplier#{key}",
                "su_address": f"street {key}",
                "su_nationkey": ord("A") + choice.randrange(len(_NATIONS)),
                "su_phone": f"{choice.randint(10, 14)}-555",
                "su_comment": pick(["bad luck", "fine", "well"]),
            }
        case "item":
            return {
                "i_id": key + 1,
                "i_name": f"item {key}",
                "i_price": f"{choice.randrange(10_000) / 100:.2f}",
                "i_data": pick(["co-abb", "PR-b", "zz-a", "co-c"]),
            }
        case "stock":
            return {
                "s_i_id": key % _SIZES["item"] + 1,
                "s_w_id": key // _SIZES["item"] + 1,
                "s_quantity": choice.randint(10, 60),
                "s_order_cnt": choice.randint(0, 9),
            }
        case "customer":
            return {
                "c_id": key // 4 + 1,
                "c_d_id": key % 2 + 1,
                "c_w_id": key // 2 % 2 + 1,
                "c_last": pick(["BAROUGHT", "OUGHTBAR"]),
                "c_city": pick(["Berlin", "Bonn"]),
                "c_state": pick("ABC") + pick("XY"),
                "c_phone": f"{choice.randint(1, 9)}-555",
                "c_balance": f"{choice.randrange(-5_000, 20_000) / 100:.2f}",
            }
        case "orders":
            return {
                "o_id": key // 4,
                "o_d_id": key % 2 + 1,
                "o_w_id": key // 2 % 2 + 1,
                "o_c_id": choice.randint(1, 2),
                "o_entry_d": _moment(choice),
                "o_carrier_id": pick([None, 1, 2, 9]),
                "o_ol_cnt": choice.randint(2, 4),
            }
        case "neworder":
            return {"no_o_id": key // 4, "no_d_id": key % 2 + 1, "no_w_id": key // 2 % 2 + 1}
        case _:
            return {
                "ol_o_id": key % 16 // 4,
                "ol_d_id": key % 2 + 1,
                "ol_w_id": key // 2 % 2 + 1,
                "ol_number": key // 16,
                "ol_i_id": choice.randint(1, _SIZES["item"]),
                "ol_supply_w_id": choice.randint(1, 2),
                "ol_delivery_d": pick([None, _moment(choice), _moment(choice)]),
                "ol_quantity": choice.randint(1, 12),
                "ol_amount": f"{choice.randrange(10_000) / 100:.2f}",
            }


history = partial(history_of, row, _SIZES, {"region": len(_REGIONS), "nation": len(_NATIONS)})


QUERIES = {
    "q1": """
        SELECT ol_number, sum(ol_quantity) AS sum_qty, sum(ol_amount) AS sum_amount,
               avg(ol_quantity) AS avg_qty, avg(ol_amount) AS avg_amount,
               count(*) AS count_order
        FROM orderline WHERE ol_delivery_d > '2007-01-02 00:00:00.000000'
        GROUP BY ol_number ORDER BY ol_number
    """,
    "q2": """
        SELECT su_suppkey, su_name, n_name, i_id, i_name, su_address, su_phone, su_comment
        FROM item, supplier, stock, nation, region,
             (SELECT s_i_id AS m_i_id, min(s_quantity) AS m_s_quantity
              FROM stock, supplier, nation, region
              WHERE mod((s_w_id * s_i_id), 10000) = su_suppkey AND su_nationkey = n_nationkey
                AND n_regionkey = r_regionkey AND r_name LIKE 'Europ%'
              GROUP BY s_i_id) m
        WHERE i_id = s_i_id AND mod((s_w_id * s_i_id), 10000) = su_suppkey
          AND su_nationkey = n_nationkey AND n_regionkey = r_regionkey AND i_data LIKE '%b'
          AND r_name LIKE 'Europ%' AND i_id = m_i_id AND s_quantity = m_s_quantity
        ORDER BY n_name, su_name, i_id
    """,
    "q3": """
        SELECT ol_o_id, ol_w_id, ol_d_id, sum(ol_amount) AS revenue, o_entry_d
        FROM customer, neworder, orders, orderline
        WHERE c_state LIKE 'A%' AND c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
          AND no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id AND ol_w_id = o_w_id
          AND ol_d_id = o_d_id AND ol_o_id = o_id AND o_entry_d > '2007-01-02 00:00:00.000000'
        GROUP BY ol_o_id, ol_w_id, ol_d_id, o_entry_d
        ORDER BY revenue DESC, o_entry_d
    """,
    "q4": """
        SELECT o_ol_cnt, count(*) AS order_count FROM orders
        WHERE o_entry_d >= '2007-01-02 00:00:00.000000'
          AND o_entry_d < '2012-01-02 00:00:00.000000'
          AND exists (SELECT * FROM orderline
                      WHERE o_id = ol_o_id AND o_w_id = ol_w_id AND o_d_id = ol_d_id
                        AND ol_delivery_d >= o_entry_d)
        GROUP BY o_ol_cnt ORDER BY o_ol_cnt
    """,
    "q5": """
        SELECT n_name, sum(ol_amount) AS revenue
        FROM customer, orders, orderline, stock, supplier, nation, region
        WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id AND ol_o_id = o_id
          AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_w_id = s_w_id AND ol_i_id = s_i_id
          AND mod((s_w_id * s_i_id), 10000) = su_suppkey
          AND ascii(substr(c_state, 1, 1)) = su_nationkey AND su_nationkey = n_nationkey
          AND n_regionkey = r_regionkey AND r_name = 'Europe'
          AND o_entry_d >= '2007-01-02 00:00:00.000000'
        GROUP BY n_name ORDER BY revenue DESC
    """,
    "q6": """
        SELECT sum(ol_amount) AS revenue FROM orderline
        WHERE ol_delivery_d >= '1999-01-01 00:00:00.000000'
          AND ol_delivery_d < '2020-01-01 00:00:00.000000'
          AND ol_quantity BETWEEN 1 AND 100000
    """,
    "q7": """
        SELECT su_nationkey AS supp_nation, substr(c_state, 1, 1) AS cust_nation,
               extract(year FROM o_entry_d) AS l_year, sum(ol_amount) AS revenue
        FROM supplier, stock, orderline, orders, customer, nation n1, nation n2
        WHERE ol_supply_w_id = s_w_id AND ol_i_id = s_i_id
          AND mod((s_w_id * s_i_id), 10000) = su_suppkey AND ol_w_id = o_w_id
          AND ol_d_id = o_d_id AND ol_o_id = o_id AND c_id = o_c_id AND c_w_id = o_w_id
          AND c_d_id = o_d_id AND su_nationkey = n1.n_nationkey
          AND ascii(substr(c_state, 1, 1)) = n2.n_nationkey
          AND ((n1.n_name = 'Germany' AND n2.n_name = 'Cambodia')
            OR (n1.n_name = 'Cambodia' AND n2.n_name = 'Germany'))
          AND ol_delivery_d BETWEEN '2007-01-02 00:00:00.000000' AND '2012-01-02 00:00:00.000000'
        GROUP BY su_nationkey, substr(c_state, 1, 1), extract(year FROM o_entry_d)
        ORDER BY su_nationkey, cust_nation, l_year
    """,
    "q8": """
        SELECT extract(year FROM o_entry_d) AS l_year,
               sum(CASE WHEN n2.n_name = 'Germany' THEN ol_amount ELSE 0 END)
                   / sum(ol_amount) AS mkt_share
        FROM item, supplier, stock, orderline, orders, customer, nation n1, nation n2, region
        WHERE i_id = s_i_id AND ol_i_id = s_i_id AND ol_supply_w_id = s_w_id
          AND mod((s_w_id * s_i_id), 10000) = su_suppkey AND ol_w_id = o_w_id
          AND ol_d_id = o_d_id AND ol_o_id = o_id AND c_id = o_c_id AND c_w_id = o_w_id
          AND c_d_id = o_d_id AND n1.n_nationkey = ascii(substr(c_state, 1, 1))
          AND n1.n_regionkey = r_regionkey AND ol_i_id < 1000 AND r_name = 'Europe'
          AND su_nationkey = n2.n_nationkey
          AND o_entry_d BETWEEN '2007-01-02 00:00:00.000000' AND '2012-01-02 00:00:00.000000'
          AND i_data LIKE '%b' AND i_id = ol_i_id
        GROUP BY extract(year FROM o_entry_d) ORDER BY l_year
    """,
    "q9": """
        SELECT n_name, extract(year FROM o_entry_d) AS l_year, sum(ol_amount) AS sum_profit
        FROM item, stock, supplier, orderline, orders, nation
        WHERE ol_i_id = s_i_id AND ol_supply_w_id = s_w_id
          AND mod((s_w_id * s_i_id), 10000) = su_suppkey AND ol_w_id = o_w_id
          AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_i_id = i_id
          AND su_nationkey = n_nationkey AND i_data LIKE '%bb'
        GROUP BY n_name, extract(year FROM o_entry_d) ORDER BY n_name, l_year DESC
    """,
    "q10": """
        SELECT c_id, c_last, sum(ol_amount) AS revenue, c_city, c_phone, n_name
        FROM customer, orders, orderline, nation
        WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id AND ol_w_id = o_w_id
          AND ol_d_id = o_d_id AND ol_o_id = o_id
          AND o_entry_d >= '2007-01-02 00:00:00.000000' AND o_entry_d <= ol_delivery_d
          AND n_nationkey = ascii(substr(c_state, 1, 1))
        GROUP BY c_id, c_last, c_city, c_phone, n_name ORDER BY revenue DESC
    """,
    "q11": """
        SELECT s_i_id, sum(s_order_cnt) AS ordercount FROM stock, supplier, nation
        WHERE mod((s_w_id * s_i_id), 10000) = su_suppkey AND su_nationkey = n_nationkey
          AND n_name = 'Germany'
        GROUP BY s_i_id
        HAVING sum(s_order_cnt) > (
            SELECT sum(s_order_cnt) * .005 FROM stock, supplier, nation
            WHERE mod((s_w_id * s_i_id), 10000) = su_suppkey AND su_nationkey = n_nationkey
              AND n_name = 'Germany')
        ORDER BY ordercount DESC
    """,
    "q12": """
        SELECT o_ol_cnt,
               sum(CASE WHEN o_carrier_id = 1 OR o_carrier_id = 2 THEN 1 ELSE 0 END)
                   AS high_line_count,
               sum(CASE WHEN o_carrier_id <> 1 AND o_carrier_id <> 2 THEN 1 ELSE 0 END)
                   AS low_line_count
        FROM orders, orderline
        WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
          AND o_entry_d <= ol_delivery_d AND ol_delivery_d < '2020-01-01 00:00:00.000000'
        GROUP BY o_ol_cnt ORDER BY o_ol_cnt
    """,
    "q13": """
        SELECT c_count, count(*) AS custdist
        FROM (SELECT c_id, count(o_id)
              FROM customer LEFT OUTER JOIN orders ON (
                  c_w_id = o_w_id AND c_d_id = o_d_id AND c_id = o_c_id AND o_carrier_id > 8)
              GROUP BY c_id) AS c_orders (c_id, c_count)
        GROUP BY c_count ORDER BY custdist DESC, c_count DESC
    """,
    "q14": """
        SELECT 100.00 * sum(CASE WHEN i_data LIKE 'PR%' THEN ol_amount ELSE 0 END)
               / (1 + sum(ol_amount)) AS promo_revenue
        FROM orderline, item
        WHERE ol_i_id = i_id AND ol_delivery_d >= '2007-01-02 00:00:00.000000'
          AND ol_delivery_d < '2020-01-02 00:00:00.000000'
    """,
    "q15": """
        WITH revenue (supplier_no, total_revenue) AS (
            SELECT mod((s_w_id * s_i_id), 10000) AS supplier_no, sum(ol_amount) AS total_revenue
            FROM orderline, stock
            WHERE ol_i_id = s_i_id AND ol_supply_w_id = s_w_id
              AND ol_delivery_d >= '2007-01-02 00:00:00.000000'
            GROUP BY mod((s_w_id * s_i_id), 10000))
        SELECT su_suppkey, su_name, su_address, su_phone, total_revenue
        FROM supplier, revenue
        WHERE su_suppkey = supplier_no
          AND total_revenue = (SELECT max(total_revenue) FROM revenue)
        ORDER BY su_suppkey
    """,
    "q16": """
        SELECT i_name, substr(i_data, 1, 3) AS brand, i_price,
               count(DISTINCT (mod((s_w_id * s_i_id), 10000))) AS supplier_cnt
        FROM stock, item
        WHERE i_id = s_i_id AND i_data NOT LIKE 'zz%'
          AND (mod((s_w_id * s_i_id), 10000) NOT IN (
              SELECT su_suppkey FROM supplier WHERE su_comment LIKE '%bad%'))
        GROUP BY i_name, substr(i_data, 1, 3), i_price ORDER BY supplier_cnt DESC
    """,
    "q17": """
        SELECT sum(ol_amount) / 2.0 AS avg_yearly
        FROM orderline, (SELECT i_id, avg(ol_quantity) AS a FROM item, orderline
                         WHERE i_data LIKE '%b' AND ol_i_id = i_id GROUP BY i_id) t
        WHERE ol_i_id = t.i_id AND ol_quantity < t.a
    """,
    "q18": """
        SELECT c_last, c_id, o_id, o_entry_d, o_ol_cnt, sum(ol_amount)
        FROM customer, orders, orderline
        WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id AND ol_w_id = o_w_id
          AND ol_d_id = o_d_id AND ol_o_id = o_id
        GROUP BY o_id, o_w_id, o_d_id, c_id, c_last, o_entry_d, o_ol_cnt
        HAVING sum(ol_amount) > 200 ORDER BY sum(ol_amount) DESC, o_entry_d
    """,
    "q19": """
        SELECT sum(ol_amount) AS revenue FROM orderline, item
        WHERE (ol_i_id = i_id AND i_data LIKE '%a' AND ol_quantity >= 1 AND ol_quantity <= 10
               AND i_price BETWEEN 1 AND 400000 AND ol_w_id IN (1, 2, 3))
           OR (ol_i_id = i_id AND i_data LIKE '%b' AND ol_quantity >= 1 AND ol_quantity <= 10
               AND i_price BETWEEN 1 AND 400000 AND ol_w_id IN (1, 2, 4))
           OR (ol_i_id = i_id AND i_data LIKE '%c' AND ol_quantity >= 1 AND ol_quantity <= 10
               AND i_price BETWEEN 1 AND 400000 AND ol_w_id IN (1, 5, 3))
    """,
    "q20": """
        SELECT su_name, su_address FROM supplier, nation
        WHERE su_suppkey IN (
            SELECT mod(s_i_id * s_w_id, 10000) FROM stock, orderline
            WHERE s_i_id IN (SELECT i_id FROM item WHERE i_data LIKE 'co%')
              AND ol_i_id = s_i_id AND ol_delivery_d > '2009-05-23 12:00:00'
            GROUP BY s_i_id, s_w_id, s_quantity
            HAVING 2 * s_quantity > sum(ol_quantity))
          AND su_nationkey = n_nationkey AND n_name = 'Germany'
        ORDER BY su_name
    """,
    "q21": """
        SELECT su_name, count(*) AS numwait FROM supplier, orderline l1, orders, stock, nation
        WHERE ol_o_id = o_id AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_w_id = s_w_id
          AND ol_i_id = s_i_id AND mod((s_w_id * s_i_id), 10000) = su_suppkey
          AND l1.ol_delivery_d > o_entry_d
          AND NOT exists (SELECT * FROM orderline l2
                          WHERE l2.ol_o_id = l1.ol_o_id AND l2.ol_w_id = l1.ol_w_id
                            AND l2.ol_d_id = l1.ol_d_id AND l2.ol_delivery_d > l1.ol_delivery_d)
          AND su_nationkey = n_nationkey AND n_name = 'Germany'
        GROUP BY su_name ORDER BY numwait DESC, su_name
    """,
    "q22": """
        SELECT substr(c_state, 1, 1) AS country, count(*) AS numcust, sum(c_balance) AS totacctbal
        FROM customer
        WHERE substr(c_phone, 1, 1) IN ('1', '2', '3', '4', '5', '6', '7')
          AND c_balance > (SELECT avg(c_balance) FROM customer
                           WHERE c_balance > 0.00
                             AND substr(c_phone, 1, 1) IN ('1', '2', '3', '4', '5', '6', '7'))
          AND NOT exists (SELECT * FROM orders
                          WHERE o_c_id = c_id AND o_w_id = c_w_id AND o_d_id = c_d_id
                            AND o_carrier_id = 9)
        GROUP BY substr(c_state, 1, 1) ORDER BY substr(c_state, 1, 1)
    """,
}
