-- Views of a shop, all in SQL; examples/views.yaml says the same in YAML.
--
-- `python examples/shop.py` writes the topics.  See what it costs, and run it:
--
--   ikebana explain examples/views.sql
--   ikebana run examples/views.sql --once
--   ikebana snapshot revenue
CREATE PIPELINE views WITH (
    kafka = (bootstrap.servers = '${KAFKA:-localhost:9092}'),
    run = (checkpoint = './checkpoint-views'));

CREATE SOURCE orders (customer VARCHAR, product VARCHAR, quantity BIGINT)
    FROM KAFKA (topic = 'orders');
CREATE SOURCE prices (price DECIMAL(12,2)) FROM KAFKA (topic = 'prices');
CREATE SOURCE customers (name VARCHAR, country VARCHAR, segment VARCHAR)
    FROM KAFKA (topic = 'customers');

-- What each product has sold for, at the prices of now.
CREATE VIEW revenue AS
    SELECT o.product, sum(o.quantity * p.price) AS total, count(*) AS orders
    FROM orders o JOIN prices p ON o.product = p.key::VARCHAR
    GROUP BY o.product;

-- Customers who never bought eight of anything.
CREATE VIEW modest AS
    SELECT c.name, c.country FROM customers c
    WHERE NOT EXISTS (SELECT 1 FROM orders o
                      WHERE o.customer = c.key::VARCHAR AND o.quantity >= 8);

CREATE VIEW best WITH (key = 'product') AS
    SELECT * FROM revenue ORDER BY total DESC LIMIT 3;

CREATE SINK revenue FROM revenue INTO KAFKA (topic = 'revenue', format = 'upsert');
CREATE SINK modest FROM modest INTO KAFKA (topic = 'modest');
CREATE SINK best FROM best INTO KAFKA (topic = 'best');
