"""Clients of the API: the protocol of its verbs, the client over HTTPS, informers, and the recorder of events."""
