"""Running of turns: the driver, the models, limits and telemetry."""
