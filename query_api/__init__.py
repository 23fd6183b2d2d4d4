"""HTTP: answers from the ready board, everything else from the engine, events as they come."""
