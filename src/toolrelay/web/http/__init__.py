"""An HTTP/1.1 server on httptools. It knows nothing of the APIs that are served over it."""
