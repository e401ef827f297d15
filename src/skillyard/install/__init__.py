"""How skills come to be here: new ones from templates; from outside by source, stage, swap."""
