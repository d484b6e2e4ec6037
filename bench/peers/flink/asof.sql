CREATE TABLE orders (id BIGINT, product BIGINT, qty BIGINT, ts BIGINT, happened AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR happened AS happened) WITH (
  'connector' = 'kafka', 'topic' = '$orders', 'scan.startup.mode' = 'earliest-offset',
  'properties.bootstrap.servers' = '$servers', 'properties.group.id' = '$group',
  'properties.isolation.level' = 'read_committed', 'format' = 'json'
);
CREATE TABLE prices (product BIGINT, price BIGINT, ts BIGINT, happened AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR happened AS happened, PRIMARY KEY (product) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '$prices',
  'properties.bootstrap.servers' = '$servers', 'properties.group.id' = '$group',
  'properties.isolation.level' = 'read_committed',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE priced (id BIGINT, product BIGINT, qty BIGINT, ts BIGINT, price BIGINT, pts BIGINT) WITH (
  'connector' = 'kafka', 'topic' = '$topic',
  'properties.bootstrap.servers' = '$servers', 'properties.linger.ms' = '20',
  'properties.transaction.timeout.ms' = '300000', 'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '$topic'
);
INSERT INTO priced
SELECT o.id, o.product, o.qty, o.ts, p.price, p.ts
FROM orders AS o LEFT JOIN prices FOR SYSTEM_TIME AS OF o.happened AS p ON o.product = p.product
