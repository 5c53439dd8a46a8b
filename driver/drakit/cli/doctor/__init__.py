"""``drakit doctor``: checks everything that the driver needs on its node and in its cluster, and prints a fix for each problem. Changes nothing."""
