"""The engines behind `work/engine.py`, each in its own module."""
