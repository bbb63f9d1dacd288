CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY,
  customer INTEGER NOT NULL REFERENCES customers (id),
  item TEXT NOT NULL,
  cents INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'sent', 'cancelled'))
);
INSERT INTO customers VALUES (1, 'Ada Lovelace', 'London'), (2, 'Grace Hopper', 'New York'), (3, 'Emmy Noether', 'Erlangen');
INSERT INTO orders VALUES
  (1, 1, 'Notebook', 450, 'sent'),
  (2, 1, 'Punched cards', 1200, 'open'),
  (3, 1, 'Ink', 300, 'open'),
  (4, 2, 'Moth trap', 2600, 'open'),
  (5, 3, 'Chalk', 150, 'sent'),
  (6, 3, 'Blackboard', 8900, 'open');
