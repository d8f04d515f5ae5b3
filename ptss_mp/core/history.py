"""What the scheduler was told and what it asked for, for a while: `story` reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .commands import Command, Dispatch, Settle, TellDeadline
from .events import Answered, Event, Submitted

HISTORY_ROWS = 50_000  # rows and edges of events, ids of commands that are kept; 10,000 jobs tell about so many


class History(deque[tuple[Sequence[Event], Sequence[Command], int]]):
    """The last steps, the oldest first, each with its number of rows: a step may concern one job or thousands.

    Attributes:
        edges: of the graph, among the events of this step.
    """

    rows = edges = 0

    def remember(self, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Add a step; forget the oldest ones beyond the bound."""
        rows = 1 + self.edges
        self.edges = 0
        for event in events:
            if type(event) is Submitted or type(event) is Answered:
                rows += len(event.rows)
        for command in commands:
            rows += len(command.ids) if isinstance(command, Settle | Dispatch | TellDeadline) else 1
        self.append((events, commands, rows))
        self.rows += rows
        while self.rows > HISTORY_ROWS and len(self) > 1:
            self.rows -= self.popleft()[2]
