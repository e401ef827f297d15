"""Assembly, Task and the prompt grammar: the only place that builds the rest, lazily."""
