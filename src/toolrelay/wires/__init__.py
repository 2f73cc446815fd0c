"""The HTTP APIs that clients and providers speak, one sub-package each."""
