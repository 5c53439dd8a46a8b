"""The API over HTTP: requests in, registry calls, responses out. It listens nowhere; ``api.apiserver`` does that."""
