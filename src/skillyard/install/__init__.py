"""How skills come from outside: source, stage, swap."""
