"""Pure values and state machines: no I/O, clock or randomness."""
