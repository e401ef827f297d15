"""Changes text files."""
