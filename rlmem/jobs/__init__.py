"""`rlmem sweep`: many runs, of which none is lost, none is done twice, and none stops the others."""
