"""A resident session: its token log, its data region, its place in the cell budget."""
