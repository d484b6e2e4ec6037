CREATE TABLE customer (ck BIGINT, seg BIGINT, name STRING, PRIMARY KEY (ck) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '$customer',
  'properties.bootstrap.servers' = '$servers', 'properties.group.id' = '$group',
  'properties.isolation.level' = 'read_committed',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE orders (ok BIGINT, ck BIGINT, odate BIGINT, prio BIGINT, PRIMARY KEY (ok) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '$orders',
  'properties.bootstrap.servers' = '$servers', 'properties.group.id' = '$group',
  'properties.isolation.level' = 'read_committed',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE lineitem (ok BIGINT, `ln` BIGINT, ship BIGINT, price BIGINT, disc BIGINT, PRIMARY KEY (ok, `ln`) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '$lineitem',
  'properties.bootstrap.servers' = '$servers', 'properties.group.id' = '$group',
  'properties.isolation.level' = 'read_committed',
  'key.format' = 'json', 'value.format' = 'json'
)
