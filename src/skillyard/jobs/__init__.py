"""When skills run: jobs, schedules, flows and the worker."""
