CREATE TABLE skills (
    id INTEGER PRIMARY KEY, root TEXT NOT NULL, file TEXT NOT NULL,
    mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    digest TEXT NOT NULL, name TEXT NOT NULL, folder_name TEXT NOT NULL, role TEXT NOT NULL,
    kind TEXT NOT NULL, severity TEXT NOT NULL, usable INTEGER NOT NULL, folded TEXT NOT NULL, title TEXT NOT NULL,
    description TEXT NOT NULL, tags TEXT NOT NULL, record TEXT NOT NULL  -- the long ones last: a search reads thousands
);
CREATE INDEX skills_by_file ON skills (root, file);
CREATE INDEX skills_by_folder ON skills (folder_name);
CREATE INDEX skills_by_folded ON skills (root, folded);
CREATE TABLE folders (
    root TEXT NOT NULL, path TEXT NOT NULL,
    mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    children TEXT NOT NULL, PRIMARY KEY (root, path)
) WITHOUT ROWID;
CREATE TABLE published (file TEXT PRIMARY KEY, stamps TEXT NOT NULL, files TEXT NOT NULL);
CREATE VIRTUAL TABLE head USING fts5(name, title, tags, description, tokenize = 'porter unicode61');
CREATE VIRTUAL TABLE inside USING fts5(headings, text, tokenize = 'porter unicode61');
CREATE TABLE words (word TEXT PRIMARY KEY) WITHOUT ROWID;
