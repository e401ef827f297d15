"""Installs skills from sources, writes new ones from templates, and links them for agents."""
