"""The warden: the single-threaded process that forks, watches, kills and reaps the workers."""
