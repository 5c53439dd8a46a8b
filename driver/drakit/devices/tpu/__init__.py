"""The TPU family: chips of many nodes wired into one grid, offered as slices of the grid that a claim takes whole."""
