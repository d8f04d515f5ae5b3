"""The shell acts: it obeys the core's commands and tells it what happened.  It decides nothing."""
