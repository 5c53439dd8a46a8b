"""Rules of what drivers and admins publish: ResourceSlices and their devices, DeviceTaintRules, and requests for the status of pools."""
