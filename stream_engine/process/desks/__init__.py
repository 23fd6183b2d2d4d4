"""The desks of the engine process: each takes the messages of one kind of asker, and answers them."""
