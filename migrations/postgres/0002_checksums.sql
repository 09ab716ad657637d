-- What each row was when it was written, so that damage is noticed. A row without a sum was written by a
-- version that knows none; it is taken as it is.
ALTER TABLE resources ADD COLUMN checksum BIGINT;
ALTER TABLE changes ADD COLUMN checksum BIGINT;
ALTER TABLE sessions ADD COLUMN checksum BIGINT;

-- A replica of such a version may still run beside newer ones: it changes a row and leaves the sum, which
-- is then the sum of something else. Equal sums of different rows lose theirs as well, which does no harm.
CREATE FUNCTION forget_old_checksum() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.checksum = OLD.checksum AND NEW IS DISTINCT FROM OLD THEN
        NEW.checksum := NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER forget_old_checksum BEFORE UPDATE ON resources
    FOR EACH ROW EXECUTE FUNCTION forget_old_checksum();
CREATE TRIGGER forget_old_checksum BEFORE UPDATE ON sessions
    FOR EACH ROW EXECUTE FUNCTION forget_old_checksum();
