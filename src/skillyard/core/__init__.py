"""The words: what a skill, a request and a result are. No I/O, standard library only."""
