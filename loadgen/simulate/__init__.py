"""The paper's model of pre-positioning, without an engine: closed form, simulated session traces, figures."""
