"""The one pipeline, and the only place where errors become results."""
