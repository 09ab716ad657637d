-- Emptied and filled again by a transaction that is then undone: whether there is room for new pages.
CREATE TABLE probe (filling TEXT NOT NULL);
ALTER TABLE probe ALTER COLUMN filling SET STORAGE PLAIN;
