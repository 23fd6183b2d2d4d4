"""What the engine counts, each once: the name that ``Status.counters`` and ``/metrics`` show, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, field


def _counter(help_text: str) -> float:
    made: float = field(default=0.0, metadata={"help": help_text})
    return made


@dataclass(slots=True)
class EngineCounters:
    """Exported from the start: a counter that first appears with its first event hides that event from
    ``rate()``."""

    commits_total: float = _counter("Commits: the records of one key that one step appended")
    records_total: float = _counter("Records taken from consumers, those that were not applied included")
    bars_total: float = _counter("Bars applied")
    late_bars_total: float = _counter("Bars not applied, because they are older than the region's first")
    gaps_total: float = _counter("Bars that did not follow the one before at once")
    duplicates_total: float = _counter("Records not applied, because they were before")
    replayed_total: float = _counter("Records that refilled windows without running the model")
    batches_refused_total: float = _counter("Batches refused: out of order, or of an assignment that has ended")
    steps_total: float = _counter("Forward passes")
    step_tokens_total: float = _counter("Tokens of all forward passes")
    step_seconds_total: float = _counter("Time spent in forward passes")
    prepositions_total: float = _counter("Decision points decoded ahead")
    prepositions_skipped_total: float = _counter("Decision points left out of a step for want of cells")
    evaluations_missed_total: float = _counter(
        "Commits at which a standing query with `on: commit` was not evaluated"
    )
    answers_fast_total: float = _counter(
        "Answers of the engine from a ready distribution; those of the API are its own"
    )
    answers_fallthrough_total: float = _counter("Answers decoded from a resident branch on (Eq. 5)")
    answers_cold_total: float = _counter("Answers decoded without a resident branch (Eq. 2)")
    queries_refused_total: float = _counter(
        "Queries answered with an error: bounds not met, not supported, no such session"
    )
    queries_shed_total: float = _counter(
        "Queries refused with 429, because as many waited as may (engine.max_queries)"
    )
    queries_expired_total: float = _counter(
        "Queries dropped, because the API had given them up (api.engine_timeout_s)"
    )
    questions_promoted_total: float = _counter("Questions that were asked often enough to ride along with commits")
    questions_demoted_total: float = _counter("Promoted questions that are not asked any more")
    promoted_reads_total: float = _counter("Answers from a promoted question's own distribution")
    swaps_total: float = _counter("Window swaps")
    swaps_prepared_total: float = _counter("Window swaps whose cells were pre-filled in idle time")
    swaps_unprepared_total: float = _counter(
        "Next regions that were not pre-filled, because the pool had no cells for a second slab"
    )
    sessions_slept_total: float = _counter("Sessions let go of, because nobody fed or asked them")
    sessions_woken_total: float = _counter("Sessions brought back from their windows by a record or a question")
    sessions_not_woken_total: float = _counter("Sessions begun anew, because the window they slept on was lost")
    evictions_total: float = _counter("Sessions whose cells went to another session")
