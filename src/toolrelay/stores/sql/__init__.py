"""All SQL of the store, as functions of a connection, in the SQL that SQLite and PostgreSQL share."""
