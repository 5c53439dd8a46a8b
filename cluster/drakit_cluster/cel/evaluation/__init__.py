"""A checked tree to closures, and the values that they work on."""
