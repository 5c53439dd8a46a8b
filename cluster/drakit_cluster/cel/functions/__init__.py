"""The functions and operators of CEL, as Kubernetes' libraries have them."""
