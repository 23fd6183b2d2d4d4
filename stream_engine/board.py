"""The ready board: ready distributions in one memory-mapped file, so that an API process answers alone.

The engine owns a ``BoardWriter``, every API worker a ``BoardReader``; ``board_layout`` describes the file.
"""

from stream_engine.board_layout import BoardError, BoardMeta, Miss, SlotRecord
from stream_engine.board_reader import BoardReader, ReadySlot
from stream_engine.board_writer import BoardCounters, BoardWriter, SessionHandle

__all__ = [
    "BoardCounters",
    "BoardError",
    "BoardMeta",
    "BoardReader",
    "BoardWriter",
    "Miss",
    "ReadySlot",
    "SessionHandle",
    "SlotRecord",
]
