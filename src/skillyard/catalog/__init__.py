"""What exists: readers of SKILL.md, discovery, resolve, search."""
