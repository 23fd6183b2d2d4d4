"""Small tools without a domain: time stamps, intervals, locks, ports, secrets, findings."""
