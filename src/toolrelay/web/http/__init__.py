"""An HTTP/1.1 server on httptools, independent of the APIs that are served over it."""
