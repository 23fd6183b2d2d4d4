"""From bytes and files to bars: formats, field names, times, rules, and the reasons of what is refused."""
