-- People who are signed in with a browser. `digest` is the hash of the token in the cookie, `credential` that of the key it was made with.
CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    credential TEXT NOT NULL,
    may_approve BOOLEAN NOT NULL,
    user_agent TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    last_used_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX sessions_owner ON sessions (owner);
