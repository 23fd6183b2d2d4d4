"""What is left of a question without its manners: the words that decide what is asked."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

LEADS = (
    "i would like to know", "i want to know", "could you please tell me", "can you please tell me",
    "could you tell me", "can you tell me", "could you show me", "can you show me", "please tell me",
    "let me know", "could you say", "can you say", "do you know", "tell me", "show me", "give me", "please",
    "okay", "ok", "hello", "hey", "hi", "so", "now", "and", "quick", "well", "it :", "it ,",
)  # fmt: skip
TAILS = (
    "at the moment", "at this moment", "right now", "just now", "over the window", "over the last bars",
    "in the last bars", "in this window", "currently", "presently", "lately", "recently", "please", "now", "here",
)  # fmt: skip
"""Words around a question that do not change what is asked of the window that the session holds."""

_AUXILIARIES = frozenset(
    ("is", "are", "am", "was", "were", "has", "have", "had", "do", "does", "did", "will", "would", "can", "could",
     "should", "shall", "may", "might", "must")
)  # fmt: skip
_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")
_IS = re.compile(r"\b(what|where|how|which|it|that|there|here|who|when|why)'s\b")
_ENDS = "?.!"
MOST_WORDS = 64
"""Words and marks of a question that is looked into: nobody needs more to ask one thing."""
_MENTION = "\0"


def core(question: str, session: str = "", window_bars: int = 0) -> tuple[str, ...] | None:
    """The question's words without greetings, `please`, `right now` and the session's own name; None where it
    names something else in capitals, as symbols are written, or is too long to be one question.

    Punctuation inside the question stays: it may part several questions."""
    # Single blanks only: the patterns below are then quick on any text.
    text = " ".join(unicodedata.normalize("NFKC", question).replace(_MENTION, " ").split())
    text = text.replace("’", "'").replace("‘", "'")
    if session:
        for pattern in _mentions(session):
            text = pattern.sub(_MENTION, text)
        text = re.sub(rf"^ ?{_MENTION} ?[:,-] ?", "", text)
        text = re.sub(rf" ?,? (?:of|for|in|on|with) {_MENTION}(?!')", "", text)
        text = re.sub(rf"^ ?{_MENTION} (?!is\b|was\b|has\b|did\b|are\b)", "", text)
        text = text.replace(f"{_MENTION}'s", " its ").replace(_MENTION, " it ")
    if any(letter.islower() for letter in text) and re.search(r"\b[A-Z][A-Z]+\b", text):
        return None
    text = _IS.sub(r"\1 is", text.casefold()).replace("n't", " not")
    words = _WORD.findall(text)
    if len(words) > MOST_WORDS:
        return None
    while words and words[-1] in _ENDS:
        words.pop()
    tails: tuple[str, ...] = TAILS
    if window_bars:
        span = (f"last {window_bars} bars", f"past {window_bars} bars")
        tails = (*(f"{over} the {bars}" for over in ("over", "in", "during") for bars in span), *TAILS)
    return _without(_without(tuple(words), LEADS, first=True), tails, first=False)


def polar(words: tuple[str, ...]) -> bool:
    """Whether these words ask for yes or no: `is it rising`, but not `is it rising or falling`."""
    return bool(words) and words[0] in _AUXILIARIES and "or" not in words


def several(words: tuple[str, ...]) -> bool:
    """Whether there are two verbs, hence two questions in one: `what is the trend, is it fading`."""
    return sum(word in _AUXILIARIES for word in words) > 1


def _without(words: tuple[str, ...], phrases: tuple[str, ...], *, first: bool) -> tuple[str, ...]:
    """``words`` without the phrases, and the commas or colons beside them, at its beginning or end. Something is
    always left."""
    ordered = words if first else words[::-1]
    found = True
    while found:
        found = False
        for phrase in phrases:
            cut = tuple(phrase.split() if first else reversed(phrase.split()))
            rest = ordered[len(cut) :]
            if ordered[: len(cut)] == cut:
                while rest and rest[0] in (",", ":", "-"):
                    rest = rest[1:]
                if rest:
                    ordered, found = rest, True
                    break
    return ordered if first else ordered[::-1]


@lru_cache(maxsize=4096)
def _mentions(session: str) -> tuple[re.Pattern[str], ...]:
    """The session's id as people write it: with another separator or none, and in small letters where it is long
    enough to be no common word."""
    parts = [re.escape(part) for part in re.split(r"[^A-Za-z0-9]+", session) if part]
    if not parts:
        return ()
    flags = re.IGNORECASE if len("".join(parts)) > 3 or len(parts) > 1 else re.NOFLAG
    spelled = {re.escape(session), r"[/._-]?".join(parts)} if len(parts) > 1 else {re.escape(session)}
    ordered = sorted(spelled, key=len, reverse=True)
    return tuple(re.compile(rf"(?<![\w^$=/.-])[$]?{word}(?![\w=/^-])", flags) for word in ordered)
