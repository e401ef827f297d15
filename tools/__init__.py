"""What `./dev` calls; the tests import the list of agents from here."""
