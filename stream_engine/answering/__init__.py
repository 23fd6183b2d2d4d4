"""From a question to an answer with its evidence: the query desk, verification, promotion."""
