"""Who asks and what they may do: identities, tokens, roles, and the authorizers that decide."""
