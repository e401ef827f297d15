"""The faces ask and show; they never decide."""
