"""What the engine's one thread owns: work queue, partitions, publication, counters."""
