-- Keys of clients. `sha256` is the hash of the key, `models` and `toolsets` are JSON lists of patterns. A revoked key keeps its
-- row: its name is not used again. `last_used_at` is exact to some minutes.
CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    sha256 TEXT NOT NULL UNIQUE,
    approve BOOLEAN NOT NULL,
    models TEXT NOT NULL,
    toolsets TEXT NOT NULL,
    requests_per_minute BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    rotated_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION,
    last_used_at DOUBLE PRECISION
);
