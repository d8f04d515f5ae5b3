"""The core decides.  Nothing here reads a clock, draws a number, starts a thread or touches a file.

Time is a field of every event, so a list of events is a complete history, and
the same list gives the same commands in any process.
"""
