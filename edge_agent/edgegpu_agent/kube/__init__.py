"""The agent's calls to the API server for app limits: workloads, leases and watches."""
