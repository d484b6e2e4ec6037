"""Nexmark on a small scale: its tables, rows drawn at random, changes of them, and its queries.

Source of tables and queries: github.com/nexmark/nexmark, for Flink.  They differ from there in
what Flink alone has: names in backticks, `TABLE(TUMBLE(TABLE bid, DESCRIPTOR(…), …))`, windows as
functions of GROUP BY (q11), DATE_FORMAT, SPLIT_INDEX, and REGEXP_EXTRACT that gives null; in the
time of processing, in place of which is that of the event (q12) or the table as it is (q13); and
in q6, whose condition on a window function of the same query is QUALIFY elsewhere.  Orders that
leave ties (q6, q9, q18, q19) have more columns, since DuckDB takes any of the rows that are tied.
"""

from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from ikebana.processor.linear.sql_functions import SqlFunction
from support.sql_oracle import Tables, history_of
from support.time_windows import hopping, sessions

TABLES: Tables = {
    "person": {
        "id": "BIGINT",
        "name": "VARCHAR",
        "emailAddress": "VARCHAR",
        "creditCard": "VARCHAR",
        "city": "VARCHAR",
        "state": "VARCHAR",
        "dateTime": "TIMESTAMP",
        "extra": "VARCHAR",
    },
    "auction": {
        "id": "BIGINT",
        "itemName": "VARCHAR",
        "description": "VARCHAR",
        "initialBid": "BIGINT",
        "reserve": "BIGINT",
        "dateTime": "TIMESTAMP",
        "expires": "TIMESTAMP",
        "seller": "BIGINT",
        "category": "BIGINT",
        "extra": "VARCHAR",
    },
    "bid": {
        "auction": "BIGINT",
        "bidder": "BIGINT",
        "price": "BIGINT",
        "channel": "VARCHAR",
        "url": "VARCHAR",
        "dateTime": "TIMESTAMP",
        "extra": "VARCHAR",
    },
    "side_input": {"key": "BIGINT", "value": "VARCHAR"},
}
_SIZES = {"person": 6, "auction": 8, "bid": 48, "side_input": 6}
_AUCTIONS = (123, 246, 5, 6, 7, 10_123, 20_005, 8)
_PRICES = (100, 9_999, 10_000, 999_999, 1_000_000, 2_000_000, 60_000_000)


def _moment(choice: Random, least: int, most: int) -> str:
    begin = datetime(2024, 1, 1, 5, 59, 30)  # noqa: DTZ001 -- as TIMESTAMP has it
    return str(begin + timedelta(seconds=choice.randint(least, most)))


def row(choice: Random, table: str, key: int) -> dict[str, Any]:
    """A row of a table with this key, whatever else it has."""
    pick = choice.choice
    match table:
        case "person":
            return {
                "id": key,
                "name": f"Person {key % 3}",
                "emailAddress": f"{key}@example.com",
                "creditCard": pick(["1234 5678", "9012 3456"]),
                "city": pick(["Phoenix", "Boise"]),
                "state": pick(["OR", "ID", "CA", "WA"]),
                "dateTime": _moment(choice, 0, 30),
                "extra": pick(["", "accord"]),
            }
        case "auction":
            return {
                "id": _AUCTIONS[key],
                "itemName": f"item {key}",
                "description": pick(["old", "new"]),
                "initialBid": pick([1, 20]),
                "reserve": pick([100, 200]),
                "dateTime": _moment(choice, 0, 30),
                "expires": _moment(choice, 50, 90),
                "seller": choice.randrange(_SIZES["person"]),
                "category": pick([10, 11]),
                "extra": pick(["", "carved"]),
            }
        case "bid":
            channel = pick(["Apple", "google", "FACEBOOK", "channel-1", "channel-2"])
            query = pick(["?channel_id=7", "?a=1&channel_id=8&b=2", "&channel_id=9", ""])
            return {
                "auction": pick(_AUCTIONS),
                "bidder": choice.randrange(_SIZES["person"]),
                "price": pick(_PRICES),
                "channel": channel,
                "url": f"https://www.nexmark.com/{channel}/{key % 4}/item.htm{query}",
                "dateTime": _moment(choice, 0, 90),
                "extra": pick(["", "cc", "abcac"]),
            }
        case _:
            return {"key": _AUCTIONS[key] % 10_000, "value": f"side {choice.randrange(3)}"}


history = partial(history_of, row, _SIZES, {})


_DAY = "strftime(dateTime, '%Y-%m-%d')"
_RANKS = """
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids
"""
_DISTINCT = ",".join(
    f"""
    count(DISTINCT {column}) AS total_{column}s,
    count(DISTINCT {column}) FILTER (WHERE price < 10000) AS rank1_{column}s,
    count(DISTINCT {column}) FILTER (WHERE price >= 10000 AND price < 1000000)
        AS rank2_{column}s,
    count(DISTINCT {column}) FILTER (WHERE price >= 1000000) AS rank3_{column}s
    """
    for column in ("bidder", "auction")
)
_HOP = "hop(bid, dateTime, INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
_CHANNEL = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"

QUERIES = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id
        FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
        WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')
    """,
    "q4": """
        SELECT Q.category, AVG(Q.final)
        FROM (SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
              WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
              GROUP BY A.id, A.category) Q
        GROUP BY Q.category
    """,
    "q5": f"""
        SELECT AuctionBids.auction, AuctionBids.num
        FROM (SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime
              FROM {_HOP} GROUP BY auction, window_start, window_end) AS AuctionBids
        JOIN (SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
              FROM (SELECT count(*) AS num, window_start AS starttime, window_end AS endtime
                    FROM {_HOP} GROUP BY auction, window_start, window_end) AS CountBids
              GROUP BY CountBids.starttime, CountBids.endtime) AS MaxBids
        ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
           AND AuctionBids.num >= MaxBids.maxn
    """,
    "q6": """
        SELECT Q.seller, AVG(Q.price) OVER (
            PARTITION BY Q.seller ORDER BY Q.dateTime, Q.id
            ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
        FROM (SELECT *, ROW_NUMBER() OVER (
                  PARTITION BY A.id, A.seller ORDER BY A.price DESC, A.dateTime) AS rownum
              FROM (SELECT A.id, A.seller, B.price, B.dateTime FROM auction AS A, bid AS B
                    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires) AS A
              QUALIFY rownum <= 1) AS Q
    """,
    "q7": """
        SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra
        FROM bid B
        JOIN (SELECT MAX(price) AS maxprice, window_end AS dateTime
              FROM tumble(bid, dateTime, INTERVAL '10' SECOND)
              GROUP BY window_start, window_end) B1
        ON B.price = B1.maxprice
        WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime
    """,
    "q8": """
        SELECT P.id, P.name, P.starttime
        FROM (SELECT id, name, window_start AS starttime, window_end AS endtime
              FROM tumble(person, dateTime, INTERVAL '10' SECOND)
              GROUP BY id, name, window_start, window_end) P
        JOIN (SELECT seller, window_start AS starttime, window_end AS endtime
              FROM tumble(auction, dateTime, INTERVAL '10' SECOND)
              GROUP BY seller, window_start, window_end) A
        ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime
    """,
    "q9": """
        SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category,
               extra, auction, bidder, price, bid_dateTime, bid_extra
        FROM (SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime,
                     B.extra AS bid_extra,
                     ROW_NUMBER() OVER (
                         PARTITION BY A.id
                         ORDER BY B.price DESC, B.dateTime ASC, B.bidder, B.extra) AS rownum
              FROM auction A, bid B
              WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires)
        WHERE rownum <= 1
    """,
    "q10": f"""
        SELECT auction, bidder, price, dateTime, extra, {_DAY}, strftime(dateTime, '%H:%M')
        FROM bid
    """,
    "q11": """
        SELECT B.bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
        FROM session(bid, dateTime, INTERVAL '10' SECOND, bidder) B
        GROUP BY B.bidder, window_start, window_end
    """,
    "q12": """
        SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
        FROM tumble(bid, dateTime, INTERVAL '10' SECOND)
        GROUP BY bidder, window_start, window_end
    """,
    "q13": """
        SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
        FROM bid B JOIN side_input AS S ON mod(B.auction, 10000) = S.key
    """,
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price,
               CASE WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'dayTime'
                    WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime'
                    ELSE 'otherTime' END AS bidTimeType,
               dateTime, extra, count_char(extra, 'c') AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    "q15": f"SELECT {_DAY} AS day, {_RANKS}, {_DISTINCT} FROM bid GROUP BY {_DAY}",
    "q16": f"""
        SELECT channel, {_DAY} AS day, max(strftime(dateTime, '%H:%M')) AS minute,
               {_RANKS}, {_DISTINCT}
        FROM bid GROUP BY channel, {_DAY}
    """,
    "q17": f"""
        SELECT auction, {_DAY} AS day, {_RANKS}, min(price) AS min_price,
               max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, {_DAY}
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, dateTime, extra
        FROM (SELECT *, ROW_NUMBER() OVER (
                  PARTITION BY bidder, auction ORDER BY dateTime DESC, price, url, extra)
              AS rank_number FROM bid)
        WHERE rank_number <= 1
    """,
    "q19": """
        SELECT * FROM (SELECT *, ROW_NUMBER() OVER (
                           PARTITION BY auction ORDER BY price DESC, dateTime, bidder, url, extra)
                       AS rank_number FROM bid)
        WHERE rank_number <= 3
    """,
    "q20": """
        SELECT auction, bidder, price, channel, url, B.dateTime, B.extra, itemName, description,
               initialBid, reserve, A.dateTime, expires, seller, category, A.extra
        FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id
        WHERE A.category = 10
    """,
    "q21": f"""
        SELECT auction, bidder, price, channel,
               CASE WHEN lower(channel) = 'apple' THEN '0'
                    WHEN lower(channel) = 'google' THEN '1'
                    WHEN lower(channel) = 'facebook' THEN '2'
                    WHEN lower(channel) = 'baidu' THEN '3'
                    ELSE {_CHANNEL} END AS channel_id
        FROM bid
        WHERE {_CHANNEL} IS NOT NULL
              OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
    """,
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
               split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bid
    """,
    "q23": """
        SELECT bidder, price, channel, url, B.extra AS bid_extra, P.id AS person_id, name,
               emailAddress, creditCard, city, state, P.extra AS person_extra, itemName,
               description, initialBid, reserve, A.dateTime AS auction_dateTime, expires, seller,
               category, A.extra AS auction_extra
        FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder
    """,
}
_WINDOWS = {
    _HOP: hopping("bid", "dateTime", "10 seconds", "2 seconds"),
    **{
        f"tumble({table}, dateTime, INTERVAL '10' SECOND)": hopping(
            table, "dateTime", "10 seconds", "10 seconds"
        )
        for table in ("bid", "person", "auction")
    },
    "session(bid, dateTime, INTERVAL '10' SECOND, bidder)": sessions(
        "bid", "dateTime", "10 seconds", "bidder"
    ),
}


FUNCTIONS = {
    "count_char": SqlFunction(
        "count_char", "user_functions:count_char", ("VARCHAR", "VARCHAR"), "BIGINT"
    )
}
_DEFINITIONS = {
    **_WINDOWS,
    "count_char(extra, 'c')": "length(extra) - length(replace(extra, 'c', ''))",
}


def for_duckdb(query: str) -> str:
    """A query in which windows of time, and a function of one's own, stand as their definition."""
    for text, definition in _DEFINITIONS.items():
        query = query.replace(text, definition)
    return query
