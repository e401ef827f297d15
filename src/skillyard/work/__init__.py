"""When: the file editor; idempotency, bin/ scripts, jobs, reviews."""
