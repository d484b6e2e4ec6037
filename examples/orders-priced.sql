-- Orders with the price of their time, and shipments with all that belongs to them:
-- examples/orders-priced.yaml in SQL.  Operators that SQL has no words for are written with the
-- keys that they have in YAML.
CREATE PIPELINE orders-priced WITH (
    kafka = (bootstrap.servers = 'localhost:9092'),
    run = (checkpoint = './checkpoint-orders-priced'));

CREATE SOURCE customers (name VARCHAR, country VARCHAR)
    FROM KAFKA (topic = 'customers', event_time = (clock = kafka, lateness = '5s'));
CREATE SOURCE prices (price DECIMAL(12,2))
    FROM KAFKA (topic = 'prices', event_time = (clock = kafka, lateness = '5s'));
CREATE SOURCE orders (customer JSON, product JSON, quantity BIGINT)
    FROM KAFKA (topic = 'orders', event_time = (clock = kafka, lateness = '5s'));
CREATE SOURCE shipments ("order" JSON, carrier VARCHAR)
    FROM KAFKA (topic = 'shipments', event_time = (clock = kafka, lateness = '5s'));

CREATE OPERATOR customer WITH (upsert = customers);
CREATE OPERATOR price WITH (upsert = prices);
CREATE OPERATOR "order" WITH (upsert = orders);
CREATE OPERATOR shipment WITH (upsert = shipments);

CREATE OPERATOR priced WITH (
    as_of_join = (o = "order", p = price),
    on = 'o.product = p.key',
    select = (product = 'o.product', price = 'p.price', amount = 'o.quantity * p.price'),
    -- An order that is taken back takes back the price that it had, not today's.
    retract = locked);

CREATE OPERATOR dispatched WITH (
    delta_join = (o = "order", c = customer, s = shipment),
    where = ('o.customer = c.key', 's."order" = o.key'),
    select = (customer = 'c.name', product = 'o.product', quantity = 'o.quantity', carrier = 's.carrier'),
    key = 's.key');

CREATE SINK priced FROM priced INTO KAFKA (topic = 'priced');
CREATE SINK dispatched FROM dispatched INTO KAFKA (topic = 'dispatched', format = 'upsert');
