"""Skills inside agents: the same runtime over the Model Context Protocol."""
