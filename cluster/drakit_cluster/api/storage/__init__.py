"""The API server's storage: objects, their versions and history, and the watches and selectors that read them."""
