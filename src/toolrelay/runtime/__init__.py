"""What moves: the driver and its telemetry."""
