"""Authentication and authorization: identities, tokens, roles, and authorizers."""
