"""The drivers of the backend agents."""
