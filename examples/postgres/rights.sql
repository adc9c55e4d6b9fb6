-- An application's role that may use the functions and can neither read nor change Hapax's tables. Run it as their owner.
CREATE ROLE shop LOGIN;
GRANT USAGE ON SCHEMA hapax TO shop;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hapax TO shop;
