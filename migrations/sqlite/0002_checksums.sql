-- What each row was when it was written, so that damage is noticed. Rows that are there already get theirs
-- at the first start after this, which the sum of the identity marks as done.
ALTER TABLE resources ADD COLUMN checksum INTEGER;
ALTER TABLE changes ADD COLUMN checksum INTEGER;
ALTER TABLE sessions ADD COLUMN checksum INTEGER;
ALTER TABLE meta ADD COLUMN checksum INTEGER;
