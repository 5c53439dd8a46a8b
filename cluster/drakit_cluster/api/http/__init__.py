"""The API over HTTP: requests in, registry calls, responses out. ``api.apiserver`` owns the listening socket."""
