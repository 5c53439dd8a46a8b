"""The scheduler: which node a pod gets, which devices its claims get, and the writes that say so."""
