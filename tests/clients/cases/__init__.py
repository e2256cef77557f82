"""Cases of `scripts/clients`: each module runs one family of clients against the server."""
