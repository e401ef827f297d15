"""What a person allowed: grants, consent, and the checks before a run."""
