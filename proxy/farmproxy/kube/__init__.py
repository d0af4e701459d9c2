"""What the API server says about a pool's pods: list and watch of EndpointSlices, over HTTP and without a client library."""
