"""Answers with their evidence: from a distribution, the session state it was computed on, and the path."""

from __future__ import annotations

from collections.abc import Sequence

from stream_engine.decision.answer import Basis
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.messages import AnswerChanged, NotEvaluated, StandingQuery
from stream_engine.model.render.rendering import Builder
from stream_engine.session.evidence import evidence_of
from stream_engine.session.session import Session
from stream_engine.util.timestamps import event_time

OTHER = "other"
"""Class of an answer that is no word of the question's class."""


def word_of(builder: Builder, tokens: Sequence[int], class_name: str | None) -> tuple[str, str]:
    """The answer's text and class: its first word of ``class_name``, or the decoded text and "other". Without a
    class it is the text, but for a single token that is a word of one."""
    known = [builder.answers[token] for token in tokens if token in builder.answers]
    if known and (len(tokens) == 1 if class_name is None else known[0][0] == class_name):
        return known[0][1], known[0][0]
    end = builder.end_token
    text = builder.decode([token for token in tokens if token != end]).strip()
    return text, OTHER if class_name is not None else "text"


def is_complete(builder: Builder, tokens: Sequence[int], class_name: str | None) -> bool:
    """Whether the tokens decoded so far are a whole answer. The first answer word ends an answer of a class; in
    free text it is a word like others."""
    worded = class_name is not None and tokens[-1] in builder.answers
    return worded or tokens[-1] == builder.end_token or len(tokens) >= builder.profile.max_answer_tokens


def basis_of(session: Session) -> Basis:
    """What an answer of the full path rests on: the session as it is."""
    source, profile = session.source, session.builder.profile
    topic = source.topic if source else None
    return Basis(evidence_of(session, -1), topic, profile.name, profile.window_bars)


def build_evaluation(
    query: StandingQuery, session: Session, ready: ReadyDistribution, confidence: float | None = None
) -> AnswerChanged:
    """A standing query's evaluation; what came before it is filled in by ``RegisteredQueries``."""
    answer, answered_class = word_of(session.builder, [ready.top1], query.class_)
    source = session.source
    return AnswerChanged(
        session=session.id,
        query=query.id,
        question=query.question,
        answer=answer,
        previous=None,
        initial=False,
        class_=answered_class,
        gap=ready.gap,
        confidence=confidence,
        session_version=session.version,
        topic=source.topic if source else None,
        partition=source.partition if source else None,
        offset=session.offset if source else None,
        event_time=event_time(session.event_time_us),
    )


def build_missed(query: StandingQuery, session: Session, reason: str) -> NotEvaluated:
    """The present version goes by without an evaluation of ``query``."""
    source = session.source
    return NotEvaluated(
        session=session.id,
        query=query.id,
        question=query.question,
        reason=reason,
        session_version=session.version,
        topic=source.topic if source else None,
        partition=source.partition if source else None,
        offset=session.offset if source else None,
        event_time=event_time(session.event_time_us),
    )
