"""The API server: verbs on stored objects, from a request over HTTPS to the store."""
