"""The worker agent: bin/ scripts, idempotency keys, interrupts."""
