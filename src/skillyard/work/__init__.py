"""When: idempotency, bin/ scripts, jobs, reviews."""
