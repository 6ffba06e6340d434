"""DNC-RC: the loops between the Kubernetes API and DNC. `process.dnc_rc` puts them together."""
