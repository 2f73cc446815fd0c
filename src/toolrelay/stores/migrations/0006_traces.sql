-- The list of an owner's turns, the newest first.
CREATE INDEX turns_owner ON turns (owner, created_at, id);
