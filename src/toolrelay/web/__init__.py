"""The web interface: API endpoints, authentication and the HTTP server under them."""
