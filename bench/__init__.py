"""`./dev bench`: every figure that we promise, measured as a ratio in one run on one machine."""
