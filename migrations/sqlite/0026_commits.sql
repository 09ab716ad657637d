-- Which commit made a revision, by a number made by chance: a file that lost its end, and goes on, has the same
-- revisions of other commits. NULL where a version that knows none of this wrote the entry.
ALTER TABLE changes ADD COLUMN commit_id INTEGER;
