"""The threat rules: what in a skill's folder may harm whoever installs it. No model, no network, nothing is run."""
