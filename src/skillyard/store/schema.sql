-- The tables of state.db. The grants lie in a file of their own.
CREATE TABLE runs (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, agent TEXT NOT NULL, skill TEXT NOT NULL, kind TEXT NOT NULL,
    state TEXT NOT NULL, started REAL NOT NULL, seconds REAL, job TEXT NOT NULL, request TEXT NOT NULL,
    launch TEXT NOT NULL, result TEXT NOT NULL
);
CREATE INDEX runs_by_start ON runs (project, started);
CREATE INDEX runs_of_jobs ON runs (project, started) WHERE job != '';
CREATE TABLE usage (
    project TEXT NOT NULL, skill TEXT NOT NULL, count INTEGER NOT NULL, last REAL NOT NULL,
    loads INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project, skill)
) WITHOUT ROWID;
CREATE TABLE keys (
    digest TEXT PRIMARY KEY, prompt TEXT NOT NULL, boot TEXT NOT NULL, at REAL NOT NULL, result TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE activations (
    id INTEGER PRIMARY KEY, user TEXT NOT NULL, conversation TEXT NOT NULL, project TEXT NOT NULL,
    skill TEXT NOT NULL, activated REAL NOT NULL, UNIQUE (user, conversation, project, skill)
);
CREATE INDEX activations_by_skill ON activations (skill);
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, backend TEXT NOT NULL, folder TEXT NOT NULL, name TEXT NOT NULL,
    session TEXT NOT NULL, state TEXT NOT NULL, started REAL NOT NULL, last REAL NOT NULL, run TEXT NOT NULL,
    size INTEGER NOT NULL, UNIQUE (backend, folder, name)
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, conversation INTEGER NOT NULL, run TEXT NOT NULL, at REAL NOT NULL,
    told TEXT NOT NULL, text TEXT NOT NULL, data TEXT NOT NULL, size INTEGER NOT NULL
);
CREATE INDEX events_by_conversation ON events (conversation, id);
-- VERSION in database.py
PRAGMA user_version = 7;
