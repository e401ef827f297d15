"""To whom: activation, the enhanced task, conversations."""
