-- Settings that were changed in the console. `path` is that of the configuration's key, `value` is JSON.
CREATE TABLE settings (
    path TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL,
    changed_at DOUBLE PRECISION NOT NULL,
    changed_by TEXT NOT NULL
);
