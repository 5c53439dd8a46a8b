"""The pods of the node: prepared claims, started containers, and their status in the API."""
