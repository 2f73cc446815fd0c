-- Times are Unix seconds.

CREATE TABLE turns (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    model TEXT NOT NULL,
    wire TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    status TEXT NOT NULL,
    conversation TEXT,
    previous TEXT,
    stored BOOLEAN NOT NULL,
    background BOOLEAN NOT NULL,
    idempotency_key TEXT,
    request_digest TEXT,
    used_tools BOOLEAN NOT NULL DEFAULT FALSE,
    deleted BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX turns_created_at ON turns (created_at);
CREATE INDEX turns_unfinished ON turns (created_at) WHERE status IN ('running', 'parked');
CREATE INDEX turns_previous ON turns (previous) WHERE previous IS NOT NULL;
CREATE INDEX turns_conversation ON turns (conversation) WHERE conversation IS NOT NULL;
-- An Idempotency-Key counts once a gateway tool was run or asked about. Then no other turn may do so under this key.
CREATE UNIQUE INDEX turns_idempotency ON turns (owner, idempotency_key) WHERE used_tools AND idempotency_key IS NOT NULL;

CREATE TABLE steps (
    turn TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (turn, seq)
);

CREATE TABLE messages (
    turn TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    role TEXT NOT NULL,
    content TEXT,
    content_json TEXT,
    tool_calls TEXT,
    tool_call_id TEXT,
    function_call TEXT,
    PRIMARY KEY (turn, position)
);

CREATE TABLE frames (
    turn TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (turn, seq)
);

CREATE TABLE conversations (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    last_used_at DOUBLE PRECISION NOT NULL,
    metadata TEXT NOT NULL
);
CREATE INDEX conversations_last_used_at ON conversations (last_used_at);

CREATE TABLE items (
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (conversation, position),
    UNIQUE (conversation, id)
);

CREATE TABLE heads (
    owner TEXT NOT NULL,
    head TEXT NOT NULL,
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    PRIMARY KEY (owner, head)
);
CREATE INDEX heads_conversation ON heads (conversation);

CREATE TABLE usage (
    minute BIGINT NOT NULL,
    model TEXT NOT NULL,
    key TEXT NOT NULL,
    turns BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    input BIGINT NOT NULL,
    output BIGINT NOT NULL,
    cached BIGINT NOT NULL,
    tool_runs BIGINT NOT NULL,
    PRIMARY KEY (minute, model, key)
);
