"""The watched risk of the fast path: its monitor, what it remembers, statistics that hold at every look."""
