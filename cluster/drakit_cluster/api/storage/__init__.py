"""What the API server keeps: objects, their versions and history, and the watches and selectors that read them."""
