-- What decides how much of the history stays of each author, apart from what an entry holds.
CREATE INDEX history_of_author ON history (author, revision, bytes);
