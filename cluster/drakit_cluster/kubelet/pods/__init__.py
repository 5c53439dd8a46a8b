"""The pods of the node: prepared claims, started containers, and what the API is told of them."""
