"""Every setting, once: a section a file, and where their values come from."""
