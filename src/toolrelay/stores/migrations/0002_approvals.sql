-- Questions to people, and their answers. `arguments` is what was asked about, `new_arguments` what a person made of it.
CREATE TABLE approvals (
    id TEXT NOT NULL PRIMARY KEY,
    turn TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    model TEXT NOT NULL,
    conversation TEXT,
    call_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    mode TEXT NOT NULL,
    toolset TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    status TEXT NOT NULL,
    answered_at DOUBLE PRECISION,
    answered_by TEXT,
    new_arguments TEXT,
    reason TEXT
);
CREATE INDEX approvals_created_at ON approvals (created_at);
CREATE INDEX approvals_pending ON approvals (created_at) WHERE status = 'pending';
CREATE INDEX approvals_turn ON approvals (turn);

-- Remembered answers. A rule without a conversation is for always, one without arguments for any.
CREATE TABLE rules (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    toolset TEXT NOT NULL,
    tool TEXT NOT NULL,
    definition TEXT NOT NULL,
    kind TEXT NOT NULL,
    verdict TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    created_by TEXT NOT NULL,
    conversation TEXT REFERENCES conversations (id) ON DELETE CASCADE,
    arguments TEXT,
    new_arguments TEXT,
    reason TEXT
);
CREATE INDEX rules_tool ON rules (owner, tool);
CREATE INDEX rules_conversation ON rules (conversation) WHERE conversation IS NOT NULL;
