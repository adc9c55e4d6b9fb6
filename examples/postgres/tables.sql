-- The business tables of the examples. pay.sql, pay.c, pay.py and pay.mjs take money from an account and note a payment;
-- own_column.sql does the same with a key in the table itself.
CREATE TABLE account (
    name text PRIMARY KEY,
    cents bigint NOT NULL CHECK (cents >= 0)
);

CREATE TABLE payment (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account text NOT NULL REFERENCES account,
    cents bigint NOT NULL
);

-- own column: table
CREATE TABLE transfer (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account text NOT NULL REFERENCES account,
    cents bigint NOT NULL,
    idempotency_key text NOT NULL UNIQUE
);
-- end
