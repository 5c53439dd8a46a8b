"""CEL text to a tree: words, grammar, macros."""
