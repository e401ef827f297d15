"""What is kept: every table of ours."""
