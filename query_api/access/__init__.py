"""Who may use the API: what a browser is allowed on behalf of a page."""
