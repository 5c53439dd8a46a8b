"""The TPU family: the chips of many nodes form one grid, and a claim gets a slice of the grid."""
