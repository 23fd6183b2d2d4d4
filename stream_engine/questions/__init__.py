"""What a question asks: its core, its class, which decision point may answer it, which are asked often."""
