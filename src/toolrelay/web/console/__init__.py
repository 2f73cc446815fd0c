"""The web console: pages for people, a thin client of the gateway's own API."""
