"""Rules of what users request and get: ResourceClaims, their templates, and DeviceClasses."""
