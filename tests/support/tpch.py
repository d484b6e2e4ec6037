"""TPC-H on a small scale: tables, rows drawn at random, changes of them, and its queries.

Source of tables and queries: the TPC-H specification (tpc.org).  Values are drawn from fewer
words than there, so that few rows meet every condition.
"""

from functools import partial
from random import Random
from typing import Any

from support.sql_oracle import Tables, history_of

_MONEY = "DECIMAL(15,2)"
TABLES: Tables = {
    "region": {"r_regionkey": "BIGINT", "r_name": "VARCHAR"},
    "nation": {"n_nationkey": "BIGINT", "n_name": "VARCHAR", "n_regionkey": "BIGINT"},
    "supplier": {
        "s_suppkey": "BIGINT",
        "s_name": "VARCHAR",
        "s_address": "VARCHAR",
        "s_nationkey": "BIGINT",
        "s_phone": "VARCHAR",
        "s_acctbal": _MONEY,
        "s_comment": "VARCHAR",
    },
    "customer": {
        "c_custkey": "BIGINT",
        "c_name": "VARCHAR",
        "c_address": "VARCHAR",
        "c_nationkey": "BIGINT",
        "c_phone": "VARCHAR",
        "c_acctbal": _MONEY,
        "c_mktsegment": "VARCHAR",
        "c_comment": "VARCHAR",
    },
    "part": {
        "p_partkey": "BIGINT",
        "p_name": "VARCHAR",
        "p_mfgr": "VARCHAR",
        "p_brand": "VARCHAR",
        "p_type": "VARCHAR",
        "p_size": "BIGINT",
        "p_container": "VARCHAR",
    },
    "partsupp": {
        "ps_partkey": "BIGINT",
        "ps_suppkey": "BIGINT",
        "ps_availqty": "BIGINT",
        "ps_supplycost": _MONEY,
    },
    "orders": {
        "o_orderkey": "BIGINT",
        "o_custkey": "BIGINT",
        "o_orderstatus": "VARCHAR",
        "o_totalprice": _MONEY,
        "o_orderdate": "DATE",
        "o_orderpriority": "VARCHAR",
        "o_shippriority": "BIGINT",
        "o_comment": "VARCHAR",
    },
    "lineitem": {
        "l_orderkey": "BIGINT",
        "l_partkey": "BIGINT",
        "l_suppkey": "BIGINT",
        "l_linenumber": "BIGINT",
        "l_quantity": _MONEY,
        "l_extendedprice": _MONEY,
        "l_discount": _MONEY,
        "l_tax": _MONEY,
        "l_returnflag": "VARCHAR",
        "l_linestatus": "VARCHAR",
        "l_shipdate": "DATE",
        "l_commitdate": "DATE",
        "l_receiptdate": "DATE",
        "l_shipinstruct": "VARCHAR",
        "l_shipmode": "VARCHAR",
    },
}
REGIONS = ("EUROPE", "ASIA", "AMERICA")
NATIONS = (("FRANCE", 0), ("GERMANY", 0), ("INDIA", 1), ("BRAZIL", 2), ("SAUDI ARABIA", 1))
_TYPES = ("PROMO BURNISHED COPPER", "ECONOMY ANODIZED STEEL", "MEDIUM POLISHED BRASS")
_CONTAINERS = ("SM CASE", "SM BOX", "MED BAG", "MED BOX", "LG CASE")
_SIZES = {"supplier": 5, "customer": 8, "part": 6, "partsupp": 14, "orders": 16, "lineitem": 48}


def _money(choice: Random, most: int) -> str:
    return f"{choice.randrange(most * 100) / 100:.2f}"


def _day(choice: Random, year: int = 0) -> str:
    years = (year,) if year else (1993, 1994, 1995, 1996)
    return f"{choice.choice(years)}-{choice.randint(1, 12):02}-{choice.randint(1, 28):02}"


def row(choice: Random, table: str, key: int) -> dict[str, Any]:
    """A row of a table with this key, whatever else it has."""
    pick = choice.choice
    match table:
        case "region":
            return {"r_regionkey": key, "r_name": REGIONS[key]}
        case "nation":
            name, region = NATIONS[key]
            return {"n_nationkey": key, "n_name": name, "n_regionkey": region}
        case "supplier":
            return {
                "s_suppkey": key,
                "s_name": f"Supplier#{key}",
                "s_address": f"street {key}",
                "s_nationkey": choice.randrange(len(NATIONS)),
                "s_phone": f"{choice.randint(10, 14)}-555",
                "s_acctbal": _money(choice, 1_000),
                "s_comment": pick(["Customer x Complaints", "fine", "well"]),
            }
        case "customer":
            return {
                "c_custkey": key,
                "c_name": f"Customer#{key}",
                "c_address": f"road {key}",
                "c_nationkey": choice.randrange(len(NATIONS)),
                "c_phone": f"{choice.choice([13, 31, 23, 29])}-555",
                "c_acctbal": _money(choice, 1_000),
                "c_mktsegment": pick(["BUILDING", "MACHINERY"]),
                "c_comment": pick(["quiet", None]),
            }
        case "part":
            return {
                "p_partkey": key,
                "p_name": pick(["forest green", "green ivory", "rose lace"]),
                "p_mfgr": pick(["Manufacturer#1", "Manufacturer#2"]),
                "p_brand": pick(["Brand#12", "Brand#23", "Brand#34"]),
                "p_type": pick(_TYPES),
                "p_size": pick([3, 5, 15]),
                "p_container": pick(_CONTAINERS),
            }
        case "partsupp":
            return {
                "ps_partkey": key % _SIZES["part"],
                "ps_suppkey": choice.randrange(_SIZES["supplier"]),
                "ps_availqty": choice.randrange(100),
                "ps_supplycost": _money(choice, 100),
            }
        case "orders":
            return {
                "o_orderkey": key,
                "o_custkey": choice.randrange(_SIZES["customer"]),
                "o_orderstatus": pick("OFP"),
                "o_totalprice": _money(choice, 1_000),
                "o_orderdate": _day(choice),
                "o_orderpriority": pick(["1-URGENT", "2-HIGH", "5-LOW"]),
                "o_shippriority": 0,
                "o_comment": pick(["special packages requests", "quick", None]),
            }
        case _:
            return {
                "l_orderkey": key % _SIZES["orders"],
                "l_partkey": choice.randrange(_SIZES["part"]),
                "l_suppkey": choice.randrange(_SIZES["supplier"]),
                "l_linenumber": key // _SIZES["orders"],
                "l_quantity": str(choice.randint(1, 40)),
                "l_extendedprice": _money(choice, 1_000),
                "l_discount": pick(["0.00", "0.05", "0.06", "0.07"]),
                "l_tax": pick(["0.00", "0.08"]),
                "l_returnflag": pick("ANR"),
                "l_linestatus": pick("FO"),
                "l_shipdate": _day(choice),
                "l_commitdate": _day(choice),
                "l_receiptdate": _day(choice),
                "l_shipinstruct": pick(["DELIVER IN PERSON", "NONE"]),
                "l_shipmode": pick(["AIR", "AIR REG", "MAIL", "SHIP"]),
            }


history = partial(history_of, row, _SIZES, {"region": len(REGIONS), "nation": len(NATIONS)})


QUERIES = {
    "q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty,
               sum(l_extendedprice) AS sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
               avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price,
               avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1996-12-01' - INTERVAL '90' DAY
        GROUP BY l_returnflag, l_linestatus
        ORDER BY l_returnflag, l_linestatus
    """,
    "q2": """
        SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM part, supplier, partsupp, nation, region
        WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = 15
          AND p_type LIKE '%STEEL' AND s_nationkey = n_nationkey
          AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
          AND ps_supplycost = (
            SELECT min(ps_supplycost) FROM partsupp, supplier, nation, region
            WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey
              AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        LIMIT 10
    """,
    "q3": """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate,
               o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10
    """,
    "q4": """
        SELECT o_orderpriority, count(*) AS order_count FROM orders
        WHERE o_orderdate >= DATE '1993-07-01'
          AND o_orderdate < DATE '1993-07-01' + INTERVAL '9' MONTH
          AND EXISTS (SELECT * FROM lineitem
                      WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority
        ORDER BY o_orderpriority
    """,
    "q5": """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
          AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey
          AND n_regionkey = r_regionkey AND r_name = 'ASIA'
          AND o_orderdate >= DATE '1994-01-01'
          AND o_orderdate < DATE '1994-01-01' + INTERVAL '2' YEAR
        GROUP BY n_name
        ORDER BY revenue DESC
    """,
    "q6": """
        SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01'
          AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR
          AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24
    """,
    "q7": """
        SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue FROM (
            SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation,
                   extract(year FROM l_shipdate) AS l_year,
                   l_extendedprice * (1 - l_discount) AS volume
            FROM supplier, lineitem, orders, customer, nation n1, nation n2
            WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
              AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
              AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY')
                OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
              AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') AS shipping
        GROUP BY supp_nation, cust_nation, l_year
        ORDER BY supp_nation, cust_nation, l_year
    """,
    "q8": """
        SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume)
                       AS mkt_share
        FROM (SELECT extract(year FROM o_orderdate) AS o_year,
                     l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation
              FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
              WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey
                AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey
                AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA'
                AND s_nationkey = n2.n_nationkey
                AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
                AND p_type = 'ECONOMY ANODIZED STEEL') AS all_nations
        GROUP BY o_year
        ORDER BY o_year
    """,
    "q9": """
        SELECT nation, o_year, sum(amount) AS sum_profit
        FROM (SELECT n_name AS nation, extract(year FROM o_orderdate) AS o_year,
                     l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
              FROM part, supplier, lineitem, partsupp, orders, nation
              WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey
                AND p_partkey = l_partkey AND o_orderkey = l_orderkey
                AND s_nationkey = n_nationkey AND p_name LIKE '%green%') AS profit
        GROUP BY nation, o_year
        ORDER BY nation, o_year DESC
    """,
    "q10": """
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal,
               n_name, c_address, c_phone, c_comment
        FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate >= DATE '1993-10-01'
          AND o_orderdate < DATE '1993-10-01' + INTERVAL '12' MONTH
          AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        ORDER BY revenue DESC, c_custkey LIMIT 5
    """,
    "q11": """
        SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
        FROM partsupp, supplier, nation
        WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name <> 'INDIA'
        GROUP BY ps_partkey
        HAVING sum(ps_supplycost * ps_availqty) > (
            SELECT sum(ps_supplycost * ps_availqty) * 0.1 FROM partsupp, supplier, nation
            WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name <> 'INDIA')
        ORDER BY value DESC
    """,
    "q12": """
        SELECT l_shipmode,
               sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH'
                        THEN 1 ELSE 0 END) AS high_line_count,
               sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH'
                        THEN 1 ELSE 0 END) AS low_line_count
        FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
          AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
          AND l_receiptdate >= DATE '1994-01-01'
        GROUP BY l_shipmode
        ORDER BY l_shipmode
    """,
    "q13": """
        SELECT c_count, count(*) AS custdist
        FROM (SELECT c_custkey, count(o_orderkey) AS c_count
              FROM customer LEFT OUTER JOIN orders
                ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
              GROUP BY c_custkey) AS c_orders
        GROUP BY c_count
        ORDER BY custdist DESC, c_count DESC
    """,
    "q14": """
        SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%'
                                 THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
               / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
        FROM lineitem, part
        WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-01-01'
          AND l_shipdate < DATE '1995-01-01' + INTERVAL '9' MONTH
    """,
    "q15": """
        WITH revenue AS (
            SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total
            FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, s_address, s_phone, total FROM supplier, revenue
        WHERE s_suppkey = supplier_no AND total = (SELECT max(total) FROM revenue)
        ORDER BY s_suppkey
    """,
    "q16": """
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
        FROM partsupp, part
        WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#34'
          AND p_type NOT LIKE 'MEDIUM%' AND p_size IN (3, 5, 15)
          AND ps_suppkey NOT IN (
            SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size
        ORDER BY supplier_cnt DESC, p_brand, p_type, p_size
    """,
    "q17": """
        SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part
        WHERE p_partkey = l_partkey AND p_brand <> 'Brand#23'
          AND l_quantity < (SELECT 0.8 * avg(l_quantity) FROM lineitem
                            WHERE l_partkey = p_partkey)
    """,
    "q18": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice,
               sum(l_quantity) AS quantity
        FROM customer, orders, lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey
                             HAVING sum(l_quantity) > 60)
          AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 10
    """,
    "q19": """
        SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem, part
        WHERE p_partkey = l_partkey AND l_shipmode IN ('AIR', 'AIR REG')
          AND l_shipinstruct = 'DELIVER IN PERSON'
          AND ((p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX')
                AND l_quantity BETWEEN 1 AND 30 AND p_size BETWEEN 1 AND 5)
            OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX')
                AND l_quantity BETWEEN 10 AND 40 AND p_size BETWEEN 1 AND 10)
            OR (p_brand = 'Brand#34' AND l_quantity >= 5))
    """,
    "q20": """
        SELECT s_name, s_address FROM supplier, nation
        WHERE s_suppkey IN (
            SELECT ps_suppkey FROM partsupp
            WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE '%green%')
              AND ps_availqty > (
                SELECT 0.5 * sum(l_quantity) FROM lineitem
                WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                  AND l_shipdate >= DATE '1994-01-01'))
          AND s_nationkey = n_nationkey AND n_name <> 'BRAZIL'
        ORDER BY s_name
    """,
    "q21": """
        SELECT s_name, count(*) AS numwait FROM supplier, lineitem l1, orders, nation
        WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus <> 'P'
          AND l1.l_receiptdate > l1.l_commitdate
          AND EXISTS (SELECT * FROM lineitem l2
                      WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
          AND NOT EXISTS (SELECT * FROM lineitem l3
                          WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey
                            AND l3.l_receiptdate > l3.l_commitdate
                            AND l3.l_returnflag = 'A')
          AND s_nationkey = n_nationkey AND n_name <> 'INDIA'
        GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100
    """,
    "q22": """
        SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
        FROM (SELECT substring(c_phone, 1, 2) AS cntrycode, c_acctbal FROM customer
              WHERE substring(c_phone, 1, 2) IN ('13', '31', '23')
                AND c_acctbal > (SELECT avg(c_acctbal) FROM customer
                                 WHERE c_acctbal > 0.00
                                   AND substring(c_phone, 1, 2) IN ('13', '31', '23'))
                AND NOT EXISTS (SELECT * FROM orders
                                WHERE o_custkey = c_custkey AND o_orderstatus = 'F')) AS custsale
        GROUP BY cntrycode
        ORDER BY cntrycode
    """,
}
