CREATE TABLE $name ($columns, PRIMARY KEY ($key) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '$topic',
  'properties.bootstrap.servers' = '$servers', 'properties.linger.ms' = '20',
  'properties.transaction.timeout.ms' = '300000',
  'key.format' = 'json', 'value.format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '$topic'
)
