"""The protocols that clients and providers speak, each in both roles, all pure."""
