"""Our database, the file of grants, logs, locks and private copies."""
