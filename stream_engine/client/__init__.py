"""What command line, demo and load generator share: options, failures, the API's address, HTTP, events."""
