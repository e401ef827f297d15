"""How each kind of skill runs."""
