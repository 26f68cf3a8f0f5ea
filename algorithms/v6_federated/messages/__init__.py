"""What crosses the network: settings, the job, and payloads of arrays."""
