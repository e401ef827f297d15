"""`./dev attack`: every known way out of the sandbox and around the runtime, tried against us and against peers.

Two classes of attacks. Payloads (`payloads.py`) run inside a sandbox and try to get out; the same program runs with
each of our levels, with bubblewrap, firejail and sandbox-runtime, and with nothing at all as the control. Product
attacks (`product*.py`) prepare a hostile skill, project or source and then call `skillyard` as a person would.

The harness decides what happened by looking at the outside: files, listeners, processes and random secrets that only
an escape can carry. It never believes a payload that says it was stopped.
"""
