"""The pure heart: values and state machines without I/O, clock or randomness."""
