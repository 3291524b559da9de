"""Segments are compared with what was written before a search trusts them, once per opening.

Of a segment that has sums, what tells its documents apart is compared at once, and the rest block
by block as it is used. Any other is compared as a whole.

What is called proven rests on these bytes. A disk can change them at any time: what it changes
after the comparison is seen when the index is opened again, or by `verify`.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from pseudoquery.storage.segments import Segment, check_content
from pseudoquery.storage.vector_view import VectorView

READ_AT_ONCE = ("ordinals", "counts", "scales", "token_counts", "layout_sizes")
"""The arrays that are read when a segment is mapped."""


class SegmentChecks:
    """Remembers which segments of an open index are what was written."""

    def __init__(self) -> None:
        self._sound: frozenset[str] = frozenset()
        self._last: VectorView | None = None
        self._mutex = threading.Lock()

    def check(self, view: VectorView) -> None:
        """Compare the segments that are new in a view.

        Raises:
            IndexFolderError: A segment is damaged.
        """
        if view is self._last:
            return
        with self._mutex:
            new = [segment for segment in view.segments if segment.name not in self._sound]
            if new:
                with ThreadPoolExecutor() as pool:  # to hash takes no interpreter
                    list(pool.map(check_content, filter(_lacks_sums, new)))
                for segment in new:
                    _check_beginning(segment)
            self._sound = frozenset(segment.name for segment in view.segments)
            self._last = view


def _lacks_sums(segment: Segment) -> bool:
    return segment.blocks is None


def _check_beginning(segment: Segment) -> None:
    """Compare what was read when the segment was mapped."""
    if segment.blocks is not None:
        segment.blocks.check(name for name in READ_AT_ONCE if name in segment.blocks.names)
