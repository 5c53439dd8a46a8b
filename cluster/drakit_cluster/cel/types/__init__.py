"""The type checker of CEL: declarations, overloads and types of every node of a tree."""
