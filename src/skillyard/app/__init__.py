"""Opens a project and connects the rooms."""
