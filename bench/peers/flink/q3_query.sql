CREATE TABLE $sink (ok BIGINT, `ln` BIGINT, revenue BIGINT, odate BIGINT, prio BIGINT, ck BIGINT, PRIMARY KEY (ok, `ln`) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '$topic',
  'properties.bootstrap.servers' = '$servers', 'properties.linger.ms' = '20',
  'properties.transaction.timeout.ms' = '300000',
  'key.format' = 'json', 'value.format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '$topic'
);
INSERT INTO $sink
SELECT l.ok, l.`ln`, l.price * (100 - l.disc), o.odate, o.prio, c.ck
FROM customer c JOIN orders o ON c.ck = o.ck JOIN lineitem l ON l.ok = o.ok
WHERE c.seg = 0 AND o.odate < 500 AND l.ship > 500 $conditions
ON CONFLICT DO DEDUPLICATE
