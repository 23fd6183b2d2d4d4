"""One step's tokens through attention: layout, tree mask, cells. The runner's interface needs no torch."""
