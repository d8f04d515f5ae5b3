"""Observers: readers of (events, commands).  They can touch nothing."""
