-- Denied tool calls, and latencies as histograms: "BUCKET:COUNT", separated by spaces.
ALTER TABLE usage ADD COLUMN denials BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN first_latencies TEXT NOT NULL DEFAULT '';
ALTER TABLE usage ADD COLUMN turn_latencies TEXT NOT NULL DEFAULT '';
