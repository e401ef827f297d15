"""The kinds of skill. A module of its own: lists need it, and nothing else of what a skill is."""

from enum import StrEnum


class Kind(StrEnum):
    COMMAND = "command"
    PROMPT = "prompt"
    JSON = "json"
