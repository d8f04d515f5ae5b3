"""What was done, on disk: accepted, started and settled jobs, for the next run (docs/journal.md)."""
